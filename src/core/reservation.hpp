// The moment for which a released key is kept for the oldest waiter.
#pragma once

#include <chrono>

namespace syncguard::core {

// To all other clients of ours a reserved key is contended for that long. Decides order only, never safety.
inline constexpr std::chrono::milliseconds reservation_time{50};

}  // namespace syncguard::core
