// A timer on the BootClock. Other timers and waits do not count the time for which the machine is suspended.
#pragma once

#include "os/descriptor.hpp"
#include "os/fork.hpp"

#include <syncguard/boot_clock.hpp>

namespace syncguard::os {

// Needs no memory after it was created.
class BootTimer {
 public:
  // Throws LockError(internal) if the system cannot create another timer.
  BootTimer();

  // Sets the time at which the timer is due; a time in the past means immediately. Any thread. Does nothing in a forked
  // child, where the timer belongs to the parent.
  void arm(BootClock::time_point due) noexcept;

  // Blocks until the timer is due, or briefly. One thread at a time.
  void wait() noexcept;

 private:
  const OriginProcess origin_;
  const Descriptor timer_;
};

}  // namespace syncguard::os
