// A steady clock that also counts the time a machine was suspended.
#pragma once

#include <chrono>

namespace syncguard::async {

// CLOCK_BOOTTIME. Leases are measured by it: a laptop that slept must not believe that it still holds its locks.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept;
};

}  // namespace syncguard::async
