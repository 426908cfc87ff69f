// Tests whether a lock could be acquired, and gives it back.
#pragma once

#include <syncguard/lease.hpp>

namespace syncguard::testing {

// For a temporary result, which cannot be tested itself.
inline bool is_granted(const TryResult& result) { return result.has_value(); }

}  // namespace syncguard::testing
