// The numbers that code inside a server (Lua, SQL) shares with this library, by name.
#pragma once

#include "core/key_rules.hpp"

#include <syncguard/fence.hpp>
#include <syncguard/liveness.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace syncguard::backends {

// What a script or a function returns first.
enum class Verdict : std::int8_t {
  yes = 1,
  no = 0,  // contended; another lock; no such lock; the waiter has to look by a call that may change something
  not_found = -1,
  expired = -2,
  foreign = -3,          // the value that is stored for the key is not a lock
  counter_at_end = -4,   // the key can no longer be locked
  wrong_isolation = -8,  // nothing was done: the transaction is not READ COMMITTED
};

// In Lua, a constant has its name in capital letters (MAX_RESERVATION), and in SQL in braces ({max_reservation}).
struct Constant {
  std::string_view name;
  std::int64_t value;
};
inline constexpr std::array constants{
    Constant{"yes", static_cast<std::int64_t>(Verdict::yes)},
    Constant{"no", static_cast<std::int64_t>(Verdict::no)},
    Constant{"not_found", static_cast<std::int64_t>(Verdict::not_found)},
    Constant{"expired", static_cast<std::int64_t>(Verdict::expired)},
    Constant{"foreign", static_cast<std::int64_t>(Verdict::foreign)},
    Constant{"counter_at_end", static_cast<std::int64_t>(Verdict::counter_at_end)},
    Constant{"wrong_isolation", static_cast<std::int64_t>(Verdict::wrong_isolation)},
    Constant{"tolerance", tolerance.count()},
    Constant{"min_reservation", core::min_reservation.count()},
    Constant{"max_reservation", core::max_reservation.count()},
    Constant{"refresh_seen", core::refresh_seen.count()},
    Constant{"dead_after", core::dead_after.count()},
    Constant{"purge_after", core::purge_after.count()},
    Constant{"max_front", static_cast<std::int64_t>(core::max_front)},
    Constant{"max_doubted", static_cast<std::int64_t>(core::max_doubted)},
    Constant{"max_purged", static_cast<std::int64_t>(core::max_purged)},
    Constant{"refuse_above", static_cast<std::int64_t>(Fence::refuse_above)},
    Constant{"warn_above", static_cast<std::int64_t>(Fence::warn_above)},
};

}  // namespace syncguard::backends
