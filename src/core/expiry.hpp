// When expired locks may be removed, and how far clocks may be off. Whether a lock is live: <syncguard/liveness.hpp>.
#pragma once

#include <syncguard/liveness.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace syncguard::core {

// Like is_removable, for an explicit cleanup: locks that expired before this time may be removed.
constexpr Timestamp removable_before(Timestamp now, std::chrono::milliseconds older_than) noexcept {
  constexpr std::chrono::milliseconds least{2000};
  return now - (older_than < least ? least : older_than);
}

// Limits opted-in cleanup to once a second. Thread-safe.
class CleanupPace {
 public:
  bool may_clean_up(std::chrono::steady_clock::time_point time) noexcept {
    const auto now = time.time_since_epoch();
    auto last = last_.load();
    return now - last >= std::chrono::seconds(1) && last_.compare_exchange_strong(last, now);
  }

 private:
  std::atomic<std::chrono::steady_clock::duration> last_{std::chrono::steady_clock::duration::zero()};
};

// The skew of a host's clock at which a warning is logged. From the second on, a host whose clock decides about expiry
// grants and extends no locks: two such skews together reach the tolerance.
inline constexpr std::chrono::milliseconds skew_warning{200};
inline constexpr std::chrono::milliseconds skew_limit = tolerance / 2;

// How far this host's clock is ahead of the server's (negative: behind). answered_at is this host's time when the reply
// arrived, and server_time is the time in the reply. The server read its clock at an unknown moment during the round
// trip, so one reply gives only a range: the result is its value closest to zero.
constexpr std::chrono::milliseconds clock_skew(Timestamp answered_at, std::chrono::milliseconds round_trip,
                                               Timestamp server_time) noexcept {
  // A broken or hostile server may send any time, and the subtraction must not overflow.
  constexpr Timestamp end_of_year_9999(std::chrono::milliseconds(253'402'300'799'999));
  const auto most = answered_at - std::clamp(server_time, Timestamp(), end_of_year_9999);
  return std::clamp(std::chrono::milliseconds::zero(), most - round_trip, most);
}

}  // namespace syncguard::core
