// A timer on the BootClock. Asio's timers do not count the time for which the machine is suspended.
#pragma once

#include <syncguard/boot_clock.hpp>
#include "os/fork.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/posix/stream_descriptor.hpp>

namespace syncguard::async {

class BootTimer {
 public:
  // Throws LockError(internal) if the system cannot create another timer.
  explicit BootTimer(const asio::any_io_executor& executor);

  // Sets the time at which the timer is due; a time in the past means immediately. Any thread. Does nothing in a forked
  // child, where the timer belongs to the parent.
  void arm(BootClock::time_point due) noexcept;

  // Returns when the timer is due: true, or false in a forked child, which must not wait again. One wait at a time.
  asio::awaitable<bool> wait();

 private:
  const os::OriginProcess origin_;
  asio::posix::stream_descriptor descriptor_;
};

}  // namespace syncguard::async
