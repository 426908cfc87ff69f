// How long a released key is kept for its oldest waiter.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace syncguard::core {

// For other SyncGuard clients a reserved key is contended. A reservation decides order only, never safety. The waiter
// requests a duration when it joins the queue; the store clamps it to these bounds, and ignores a longer reservation
// when it reads one.
inline constexpr std::chrono::milliseconds min_reservation{50};
inline constexpr std::chrono::milliseconds max_reservation{300};

// For stores that are reached without a network.
inline constexpr std::chrono::milliseconds reservation_time = min_reservation;

constexpr std::chrono::milliseconds clamp_reservation(std::chrono::milliseconds length) noexcept {
  return std::clamp(length, min_reservation, max_reservation);
}

// The round trip between one client and its store. The backend reports each request that took a single round trip, from
// before it was sent until its reply was read, and puts reservation() into the queue entry when a waiter joins.
// Thread-safe.
class RoundTrip {
 public:
  // A longer round trip counts immediately: a reservation that is too short costs the waiter its turn, while one that
  // is too long costs time only if the waiter is dead. A shorter round trip moves the estimate by an eighth of the
  // difference.
  void measured(std::chrono::steady_clock::duration sample) noexcept {
    const auto bounded = std::clamp<std::chrono::steady_clock::duration>(sample, {}, max_reservation / per_reservation);
    auto current = estimate_.load(std::memory_order_relaxed);
    while (!estimate_.compare_exchange_weak(current, bounded >= current ? bounded : current - (current - bounded) / 8,
                                            std::memory_order_relaxed)) {
    }
  }

  // Three round trips: the wake-up and the attempt take one, the rest is for delays on the way. The minimum before the
  // first measurement.
  [[nodiscard]] std::chrono::milliseconds reservation() const noexcept {
    const auto estimate = estimate_.load(std::memory_order_relaxed);
    return clamp_reservation(std::chrono::ceil<std::chrono::milliseconds>(estimate * per_reservation));
  }

 private:
  static constexpr int per_reservation = 3;
  std::atomic<std::chrono::steady_clock::duration> estimate_{std::chrono::steady_clock::duration::zero()};
};

}  // namespace syncguard::core
