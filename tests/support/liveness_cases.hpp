// When a lock is live: test cases for the implementations in C++, Lua and SQL.
#pragma once

#include <array>

namespace syncguard::testing {

struct LivenessCase {
  int expires_at;
  int now;
  bool live;
};

inline constexpr std::array liveness_cases = {LivenessCase{10'000, 9'000, true}, LivenessCase{10'000, 10'000, true},
                                              LivenessCase{10'000, 10'999, true}, LivenessCase{10'000, 11'000, false},
                                              LivenessCase{10'000, 11'001, false}};

// When cleanup may remove a lock.
struct RemovalCase {
  int expires_at;
  int now;
  bool removable;
};

inline constexpr std::array removal_cases = {RemovalCase{10'000, 9'000, false}, RemovalCase{10'000, 11'001, false},
                                             RemovalCase{10'000, 12'000, false}, RemovalCase{10'000, 12'001, true}};

}  // namespace syncguard::testing
