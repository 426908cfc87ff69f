/// \file
/// The clock by which leases are measured.
#pragma once

#include <chrono>
#include <ctime>

namespace syncguard {
inline namespace v0_1 {

/// CLOCK_BOOTTIME: a steady clock that also counts the time for which the machine was suspended, so that a laptop that
/// slept does not believe that it still holds its locks. Its epoch is the start of the machine: processes of one
/// machine share its time points, and no other machine does. Has the members of a standard clock, so that
/// std::this_thread::sleep_until and the wait_until of a condition variable accept its time points. Their waits do not
/// count suspension; they check this clock again when they end.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  /// Never throws. Any thread, and a signal handler, may call it.
  [[nodiscard]] static time_point now() noexcept {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
  }
};

}  // namespace v0_1
}  // namespace syncguard
