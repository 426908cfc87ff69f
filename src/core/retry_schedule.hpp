// How long to wait between attempts.
#pragma once

#include <syncguard/options.hpp>

#include <chrono>

namespace syncguard::core {

// The delay before retry number `retry` (1 after the first failure), before it is clamped to the time that is left:
//   base  = delay * 2^(retry-1), or delay with Backoff::fixed
//   equal = base/2 + random*base/2      full = random*base      none = base
//   at most max_delay
// random is from [0, 1).
std::chrono::nanoseconds retry_delay(const WaitOptions& options, int retry, double random) noexcept;

}  // namespace syncguard::core
