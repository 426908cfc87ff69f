// A timer on the BootClock. Asio's own timers stand still while the machine is suspended.
#pragma once

#include "async/boot_clock.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/posix/stream_descriptor.hpp>

namespace syncguard::async {

class BootTimer {
 public:
  // Throws LockError(internal) if the system has no timer left.
  explicit BootTimer(const asio::any_io_executor& executor);

  // Sets the one time at which the timer is due, in the past if at once. Any thread.
  void arm(BootClock::time_point due) noexcept;

  // Returns when the timer is due. One wait at a time.
  asio::awaitable<void> wait();

 private:
  asio::posix::stream_descriptor descriptor_;
};

}  // namespace syncguard::async
