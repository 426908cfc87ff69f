// What a broken or hostile server does.
#pragma once

#include "servers/loopback.hpp"

#include <atomic>
#include <string>
#include <thread>

namespace syncguard::testing {

// Listens, greets as Redis does, and answers every request that follows with the same bytes.
class FakeRedis {
 public:
  enum class Then { stay, hang_up };
  struct Options {
    std::string answer{};
    Then then = Then::stay;
    bool shakes_hands = true;
  };

  explicit FakeRedis(Options options);
  FakeRedis(const FakeRedis&) = delete;
  FakeRedis& operator=(const FakeRedis&) = delete;
  ~FakeRedis();

  [[nodiscard]] std::string url(const std::string& options = "") const {
    return "redis://127.0.0.1:" + std::to_string(listener_.port()) + options;
  }

 private:
  void serve() const;
  void serve(int connection) const;

  const Options options_;
  const LoopbackSocket listener_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace syncguard::testing
