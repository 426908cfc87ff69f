// Where fences end.
#pragma once

#include <syncguard/fence.hpp>

#include <cstdint>

namespace syncguard::core {

// The fence that follows a counter. Call it before anything is written: throws LockError(internal) where the limit
// would be passed.
Fence next_fence(std::uint64_t counter);

}  // namespace syncguard::core
