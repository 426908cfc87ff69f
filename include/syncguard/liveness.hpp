/// \file
/// When a lock is live: for authors of backends. This is the only definition; code that runs inside a server (Lua, SQL)
/// uses the same formula and is tested against the same cases.
#pragma once

#include <syncguard/lock_info.hpp>

#include <chrono>

namespace syncguard {
inline namespace v0_1 {

/// How far clocks may differ. Shared by all SyncGuard libraries, so it is not configurable.
inline constexpr std::chrono::milliseconds tolerance{1000};

/// Both times are on the clock of the backend's time authority, with now read inside the atomic step.
constexpr bool is_live(Timestamp expires_at, Timestamp now) noexcept { return expires_at > now - tolerance; }

/// How long until a live lock is no longer live unless its holder extends it: the value of Contended::free_in.
constexpr std::chrono::milliseconds free_in(Timestamp expires_at, Timestamp now) noexcept {
  return expires_at + tolerance - now;
}

/// Whether opted-in cleanup may remove a lock: it expired more than two seconds ago, so that no extend in flight can
/// still succeed.
constexpr bool is_removable(Timestamp expires_at, Timestamp now) noexcept {
  constexpr std::chrono::milliseconds guard{1000};
  return now - expires_at > tolerance + guard;
}

}  // namespace v0_1
}  // namespace syncguard
