// The host's clock.
#pragma once

#include <syncguard/lock_info.hpp>

#include <chrono>

namespace syncguard::os {

// The host's system clock in whole Unix milliseconds, the unit of stored locks.
inline Timestamp system_now() { return std::chrono::floor<Timestamp::duration>(std::chrono::system_clock::now()); }

}  // namespace syncguard::os
