#include "backends/redis/whereabouts.hpp"

#include "core/random.hpp"
#include "core/retry_schedule.hpp"

#include <algorithm>
#include <utility>

namespace syncguard::redis {
namespace {

// How long to wait before another attempt to connect, after so many that failed. The first comes at once.
std::chrono::nanoseconds back_off(int failures) {
  // Bounded by the number of doublings, for what is cut off at a limit is in step with all who lost the same server.
  constexpr WaitOptions schedule{.retry_delay = std::chrono::milliseconds(25), .jitter = Jitter::equal};
  constexpr int most_doublings = 5;
  if (failures <= 1) return std::chrono::nanoseconds(0);
  return core::retry_delay(schedule, std::min(failures - 1, 1 + most_doublings), core::random_fraction());
}

}  // namespace

void Whereabouts::move_to(Address address) {
  if (address.host.empty()) address.host = current_.host;
  current_ = std::move(address);
}

void Whereabouts::failed(Clock::time_point now) {
  ++failures_;
  next_attempt_ = now + back_off(failures_);
}

}  // namespace syncguard::redis
