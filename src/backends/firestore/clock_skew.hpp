// How far this host's clock, which decides about expiry, differs from Firestore's.
#pragma once

#include "core/expiry.hpp"

#include <syncguard/boot_clock.hpp>
#include <syncguard/error.hpp>
#include <syncguard/lock_info.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

namespace syncguard::firestore {

// How far this host's clock is ahead of Firestore's (negative: behind). Replies do not give one value, but a range.
struct SkewRange {
  std::chrono::milliseconds least;
  std::chrono::milliseconds most;

  // The largest difference that is possible.
  [[nodiscard]] constexpr std::chrono::milliseconds largest() const noexcept {
    return std::max(std::chrono::abs(least), std::chrono::abs(most));
  }
  // The part that is certain: network delays cannot explain it. Zero if the clocks may be equal.
  [[nodiscard]] constexpr std::chrono::milliseconds certain() const noexcept {
    return std::clamp(std::chrono::milliseconds::zero(), least, most);
  }
  // How far this host's clock may be behind.
  [[nodiscard]] constexpr std::chrono::milliseconds largest_lag() const noexcept {
    return std::max(std::chrono::milliseconds::zero(), -least);
  }
};

// A time of this host's clock, and how far it is off; nullopt before the first reply with a time.
//
// The tolerance of 1000 ms covers the skews of two hosts: a holder that is behind, and a client ahead that finds its
// lock expired. So each may be off by less than 500 ms (docs/adr/0048-clock-skew-as-an-interval.md).
struct HostTime {
  Timestamp now;
  std::optional<SkewRange> skew;

  // Whether locks may be granted, extended and removed by this time.
  [[nodiscard]] constexpr bool is_reliable() const noexcept { return skew && skew->largest() < core::skew_limit; }
  // Whether it is certainly not reliable, so that another reply changes nothing.
  [[nodiscard]] constexpr bool is_wrong() const noexcept {
    return skew && std::chrono::abs(skew->certain()) >= core::skew_limit;
  }
  // Firestore's time, as far as it is known.
  [[nodiscard]] constexpr Timestamp server_now() const noexcept {
    return now - (skew ? skew->certain() : std::chrono::milliseconds::zero());
  }
  // What a holder may rely on if its lock expires at this time of this host's clock: until then, by Firestore's clock.
  [[nodiscard]] constexpr std::chrono::milliseconds remaining_until(Timestamp expires_at) const noexcept {
    return expires_at - now - (skew ? skew->largest_lag() : std::chrono::milliseconds::zero());
  }
};

// Such as "20 ms behind".
std::string describe_skew(std::chrono::milliseconds skew);
// The error for a time that is not reliable: service_unavailable, without effect.
LockError unreliable_clock(const HostTime& time);

// One reading of this host's clock, between two readings of the BootClock.
struct ClockReading {
  Timestamp time;
  BootClock::time_point before;
  BootClock::time_point after;
};

// Compares the BootClock with Firestore's clock. Each reply gives a range as wide as its round trip, and the ranges are
// intersected. The BootClock is compared because it is never set: if this host's clock is set, the next reading shows
// it, without a reply. Reads no clock. Not thread-safe.
class ClockComparison {
 public:
  // A reply contains server_time, which Firestore read at an unknown moment between the two times.
  constexpr void add(BootClock::time_point sent_at, BootClock::time_point received_at, Timestamp server_time) noexcept {
    // A broken or hostile server may send any time, and the subtraction must not overflow.
    constexpr Timestamp end_of_year_9999(std::chrono::milliseconds(253'402'300'799'999));
    const auto server = std::clamp(server_time, Timestamp(), end_of_year_9999).time_since_epoch();
    // The server's time was rounded down to milliseconds.
    constexpr std::chrono::milliseconds rounded{1};
    const auto drift = drift_in(received_at - sent_at);
    Offset offset{.least = milliseconds_down(sent_at) - server - rounded - drift,
                  .most = milliseconds_up(received_at) - server + drift,
                  .known_at = received_at};
    if (offset_) {
      const auto old_drift = drift_in(received_at - offset_->known_at);
      const auto least = std::max(offset.least, offset_->least - old_drift);
      const auto most = std::min(offset.most, offset_->most + old_drift);
      // If they contradict each other, one of the clocks was stopped or changed its speed: the old range is outdated.
      if (least <= most) offset = {.least = least, .most = most, .known_at = std::max(received_at, offset_->known_at)};
    }
    offset_ = offset;
  }

  // How far this host's clock was off at this reading. nullopt before the first reply.
  [[nodiscard]] constexpr std::optional<SkewRange> skew_at(const ClockReading& reading) const noexcept {
    if (!offset_) return std::nullopt;
    const auto drift = drift_in(reading.after - offset_->known_at);
    const auto time = reading.time.time_since_epoch();
    return SkewRange{.least = time - milliseconds_up(reading.after) + offset_->least - drift,
                     .most = time - milliseconds_down(reading.before) + offset_->most + drift};
  }

 private:
  // How far the BootClock is ahead of Firestore's time since 1970, at a time of the BootClock.
  struct Offset {
    std::chrono::milliseconds least;
    std::chrono::milliseconds most;
    BootClock::time_point known_at;
  };

  // How much two clocks can diverge in this time: Linux lets ntpd and systemd-timesyncd change a clock's speed by at
  // most 1 in 1000.
  static constexpr std::chrono::milliseconds drift_in(BootClock::duration time) noexcept {
    return std::chrono::ceil<std::chrono::milliseconds>(std::max(time, BootClock::duration::zero()) / 1000);
  }
  static constexpr std::chrono::milliseconds milliseconds_down(BootClock::time_point time) noexcept {
    return std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch());
  }
  static constexpr std::chrono::milliseconds milliseconds_up(BootClock::time_point time) noexcept {
    return std::chrono::ceil<std::chrono::milliseconds>(time.time_since_epoch());
  }

  std::optional<Offset> offset_;
};

}  // namespace syncguard::firestore
