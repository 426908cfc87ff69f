// How far a host's clock may be off where it matters.
#pragma once

#include "core/liveness.hpp"

#include <algorithm>

namespace syncguard::core {

inline constexpr std::chrono::milliseconds skew_to_warn_of{200};
inline constexpr std::chrono::milliseconds skew_to_act_on{500};
// From here on, liveness as two hosts see it has nothing in common.
inline constexpr std::chrono::milliseconds skew_beyond_tolerance = tolerance;

// How far this host's clock is ahead of a server's (behind: negative), given what ours showed when an answer came, how
// long that took, and the server's time in it. The server may have looked at its clock at any moment in between, so
// that an answer gives a range. The estimate so far stands where it lies in it: a slow answer proves nothing.
constexpr std::chrono::milliseconds clock_skew(Timestamp answered_at, std::chrono::milliseconds round_trip,
                                               Timestamp server_time, std::chrono::milliseconds so_far = {}) noexcept {
  const auto most = answered_at - server_time;
  return std::clamp(so_far, most - round_trip, most);
}

}  // namespace syncguard::core
