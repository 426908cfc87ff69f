// A TCP proxy that counts round trips, delays bytes, stalls, or connects to another server.
#pragma once

#include "servers/loopback.hpp"

#include <atomic>
#include <chrono>
#include <thread>

namespace syncguard::testing {

class CountingProxy {
 public:
  // The delay applies to each direction: a round trip takes twice as long.
  explicit CountingProxy(int server_port, std::chrono::milliseconds delay = {});
  CountingProxy(const CountingProxy&) = delete;
  CountingProxy& operator=(const CountingProxy&) = delete;
  ~CountingProxy();

  [[nodiscard]] int port() const noexcept { return listener_.port(); }
  // How often a client sent data after the server had sent data, over all connections. Meaningful only if one
  // connection is used at a time.
  [[nodiscard]] int round_trips() const noexcept { return round_trips_; }
  // How many connections were accepted.
  [[nodiscard]] int connections() const noexcept { return connections_; }
  // From now on, forwards nothing and closes nothing, like a half-open TCP connection.
  void stall() noexcept { stalled_ = true; }
  // Affects new connections only.
  void switch_to(int server_port) noexcept { server_port_ = server_port; }

 private:
  void serve();
  void relay(int client);

  std::atomic<int> server_port_;
  const std::chrono::milliseconds delay_;
  const LoopbackSocket listener_;
  std::atomic<int> round_trips_{0};
  std::atomic<int> connections_{0};
  std::atomic<bool> stalled_{false};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace syncguard::testing
