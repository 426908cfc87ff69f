// A broken or hostile server.
#pragma once

#include "servers/loopback.hpp"

#include <atomic>
#include <string>
#include <thread>

namespace syncguard::testing {

// Replies to the first received data with its greeting, and to all later data with the same bytes.
class FakeServer {
 public:
  enum class Then { stay, hang_up, repeat_forever };
  struct Options {
    std::string answer{};
    std::string greeting{};
    Then then = Then::stay;
    bool completes_handshake = true;
  };

  explicit FakeServer(Options options);
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;
  ~FakeServer();

  [[nodiscard]] int port() const noexcept { return listener_.port(); }

 private:
  void serve() const;
  void serve(int connection) const;

  const Options options_;
  const LoopbackSocket listener_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace syncguard::testing
