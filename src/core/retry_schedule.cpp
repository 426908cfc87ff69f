#include "core/retry_schedule.hpp"

#include <algorithm>
#include <cmath>

namespace syncguard::core {

std::chrono::nanoseconds retry_delay(const WaitOptions& options, int retry, double random) noexcept {
  using FloatingMillis = std::chrono::duration<double, std::milli>;
  FloatingMillis base = options.retry_delay;
  if (options.backoff == Backoff::exponential) base *= std::exp2(std::min(retry - 1, 62));
  FloatingMillis delay = base;
  switch (options.jitter) {
    case Jitter::equal:
      delay = base / 2 + random * (base / 2);
      break;
    case Jitter::full:
      delay = random * base;
      break;
    case Jitter::none:
      break;
  }
  // Clamped while still floating, and to a year at most: nanoseconds hold no more than a few centuries.
  constexpr std::chrono::hours longest{24 * 365};
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::min({delay, FloatingMillis(options.max_delay), FloatingMillis(longest)}));
}

}  // namespace syncguard::core
