// Stands between a client and a server and counts how often they wait for each other.
#pragma once

#include "servers/loopback.hpp"

#include <atomic>
#include <thread>

namespace syncguard::testing {

// For one connection at a time of those that matter: counts over all of them.
class CountingProxy {
 public:
  explicit CountingProxy(int server_port);
  CountingProxy(const CountingProxy&) = delete;
  CountingProxy& operator=(const CountingProxy&) = delete;
  ~CountingProxy();

  [[nodiscard]] int port() const noexcept { return listener_.port(); }
  // How often the client spoke after the server had spoken.
  [[nodiscard]] int round_trips() const noexcept { return round_trips_; }

 private:
  void serve();
  void relay(int client);

  const int server_port_;
  const LoopbackSocket listener_;
  std::atomic<int> round_trips_{0};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace syncguard::testing
