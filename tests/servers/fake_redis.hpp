// A broken or hostile Redis server.
#pragma once

#include "servers/fake_server.hpp"

#include <string>
#include <utility>

namespace syncguard::testing {

// Completes the handshake of a client as Redis does, then answers every request with the same bytes.
class FakeRedis : private FakeServer {
 public:
  using FakeServer::port;
  using FakeServer::Then;
  struct Options {
    std::string answer{};
    // The replies to HELLO, CLIENT SETNAME and INFO.
    std::string greeting = "*0\r\n+OK\r\n$0\r\n\r\n";
    Then then = Then::stay;
    bool completes_handshake = true;
  };

  explicit FakeRedis(Options options)
      : FakeServer(
            {std::move(options.answer), std::move(options.greeting), options.then, options.completes_handshake}) {}

  [[nodiscard]] std::string url(const std::string& options = "") const {
    return "redis://127.0.0.1:" + std::to_string(port()) + options;
  }
};

}  // namespace syncguard::testing
