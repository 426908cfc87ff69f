// Time-outs that arithmetic can be done with.
#pragma once

#include <algorithm>
#include <chrono>

namespace syncguard::core {

// "For ever" may be written as the longest duration. A year is longer than anything runs, and short enough to be added
// to any time.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) noexcept {
  return std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
}

}  // namespace syncguard::core
