// The host's clock, as locks count it.
#pragma once

#include <syncguard/lock_info.hpp>

#include <chrono>

namespace syncguard::async {

// In whole Unix milliseconds.
inline Timestamp system_now() { return std::chrono::floor<Timestamp::duration>(std::chrono::system_clock::now()); }

}  // namespace syncguard::async
