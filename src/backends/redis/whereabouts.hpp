// Where a Redis server is, and when to try it next.
#pragma once

#include "backends/redis/stream.hpp"

#include <chrono>

namespace syncguard::redis {

// No I/O, and no lock: Link's mutex guards it.
class Whereabouts {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Whereabouts(Address configured) : configured_(std::move(configured)), current_(configured_) {}

  [[nodiscard]] const Address& address() const noexcept { return current_; }
  // Where a cluster sends us; without a host, to another port of the same one.
  void move_to(Address address);
  // Where we were sent may be gone.
  void go_home() { current_ = configured_; }

  // An attempt failed: the next one comes later than the last one did.
  void failed(Clock::time_point now);
  // It is worth connecting to.
  void answered() noexcept { failures_ = 0; }
  [[nodiscard]] Clock::time_point next_attempt() const noexcept { return next_attempt_; }

 private:
  const Address configured_;
  Address current_;
  int failures_ = 0;
  Clock::time_point next_attempt_{};
};

}  // namespace syncguard::redis
