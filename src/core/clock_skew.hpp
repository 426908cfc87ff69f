// How far a host's clock may be off where it matters.
#pragma once

#include "core/liveness.hpp"

namespace syncguard::core {

inline constexpr std::chrono::milliseconds skew_to_warn_of{200};
inline constexpr std::chrono::milliseconds skew_to_act_on{500};
// From here on, liveness as two hosts see it has nothing in common.
inline constexpr std::chrono::milliseconds skew_beyond_tolerance = tolerance;

// How far this host's clock is ahead of a server's (behind: negative), given what ours showed when an answer came, how
// long that took, and the server's time in it. The server may have looked at its clock at any moment in between: only
// what exceeds that counts.
constexpr std::chrono::milliseconds clock_skew(Timestamp answered_at, std::chrono::milliseconds round_trip,
                                               Timestamp server_time) noexcept {
  if (server_time > answered_at) return answered_at - server_time;
  const auto sent_at = answered_at - round_trip;
  if (server_time < sent_at) return sent_at - server_time;
  return std::chrono::milliseconds::zero();
}

}  // namespace syncguard::core
