// When a lock is alive. The only definition: what runs inside a server (Lua, SQL) is the same formula and is tested
// against the same cases.
#pragma once

#include <syncguard/lock_info.hpp>

#include <chrono>

namespace syncguard::core {

// How far clocks may disagree. A promise shared with every other SyncGuard, so it is no option.
inline constexpr std::chrono::milliseconds tolerance{1000};

constexpr bool is_live(Timestamp expires_at, Timestamp now) noexcept { return expires_at > now - tolerance; }

// How long until a lock that is live now will be dead unless somebody extends it.
constexpr std::chrono::milliseconds free_in(Timestamp expires_at, Timestamp now) noexcept {
  return expires_at + tolerance - now;
}

// Whether opted-in cleanup may remove a lock: dead for so long that no extend that is under way can revive it.
constexpr bool is_removable(Timestamp expires_at, Timestamp now) noexcept {
  constexpr std::chrono::milliseconds guard{1000};
  return now - expires_at > tolerance + guard;
}

}  // namespace syncguard::core
