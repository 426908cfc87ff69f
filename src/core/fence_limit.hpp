// The next fence of a key, and the limit of fences.
#pragma once

#include <syncguard/error.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/liveness.hpp>

#include <chrono>
#include <cstdint>
#include <ratio>

namespace syncguard::core {

// The error for a counter that has reached Fence::refuse_above, or that is not a valid number.
LockError counter_at_end();

// The fence of a stored counter. Throws counter_at_end() if it has more than 15 digits.
Fence fence_of_counter(std::uint64_t counter);

// One fence per 100 us: up to 10,000 grants per second of one key, its fences do not run ahead of the clock.
using FenceTicks = std::chrono::duration<std::int64_t, std::ratio<1, 10'000>>;

// Whether a store's clock is obviously wrong: after the year 2255. Fences then ignore it.
constexpr bool is_implausible(Timestamp now) noexcept {
  return now > Timestamp(std::chrono::duration_cast<std::chrono::milliseconds>(FenceTicks(Fence::warn_above)));
}

// The lowest fence that may be granted at this time on the store's clock; zero if is_implausible(now).
constexpr std::uint64_t clock_floor(Timestamp now) noexcept {
  if (now < Timestamp() || is_implausible(now)) return 0;
  return static_cast<std::uint64_t>(FenceTicks(now.time_since_epoch()).count());
}

// The larger of counter + 1 and floor. Throws counter_at_end() if the counter has reached the limit, so call it before
// anything is written.
Fence next_fence(std::uint64_t counter, std::uint64_t floor = 0);

}  // namespace syncguard::core
