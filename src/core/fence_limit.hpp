// Where fences end.
#pragma once

#include <syncguard/error.hpp>
#include <syncguard/fence.hpp>

#include <cstdint>

namespace syncguard::core {

// Of a counter that has reached Fence::refuse_above, or is no number that a counter could be.
LockError counter_at_end();

// The fence that follows a counter. Call it before anything is written: throws counter_at_end() where the limit would
// be passed.
Fence next_fence(std::uint64_t counter);

}  // namespace syncguard::core
