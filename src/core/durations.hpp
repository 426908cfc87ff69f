// Durations: parsing, bounding, random durations, and the delay between attempts.
#pragma once

#include <syncguard/options.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

namespace syncguard::core {

// Reads "500ms", "30s", "5m", "1h30m", "1d": whole numbers with units d, h, m, s, ms from large to small, each at most
// once. Returns nullopt for any other text, and if the sum overflows.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) noexcept;

// For arithmetic with timeouts: "forever" may be duration::max(), which overflows when it is added to a time. A year is
// longer than any process waits.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) noexcept {
  return std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
}

// Returns a number in [0, 1) from the system's random source, so that clients that start together do not stay in step.
double random_fraction();

template <typename Duration>
Duration random_between(Duration shortest, Duration longest) {
  return shortest + std::chrono::duration_cast<Duration>((longest - shortest) * random_fraction());
}

// The delay before retry number `retry` (1 after the first failure), before it is clamped to the remaining time:
//   base  = delay * 2^(retry-1), or delay with Backoff::fixed
//   equal = base/2 + random*base/2      full = random*base      none = base
//   at most max_delay, and at least 1 ms
// random is from [0, 1).
std::chrono::nanoseconds retry_delay(const WaitOptions& options, int retry, double random) noexcept;

}  // namespace syncguard::core
