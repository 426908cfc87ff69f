// The rules of a key, as pure functions: (what a store has read in one atomic step, request) -> (reply, changes).
//
// Memory, SQLite and Firestore call these functions. Redis and PostgreSQL follow the same rules in Lua and PL/pgSQL.
// The cases in tests/vectors/key_rules.json run against the functions and against every store with a queue.
//
// The queue decides order only, never safety: a grant depends on the holder and the counter, and any turn or entry may
// vanish at any time. Two ideas keep dead and frozen waiters from delaying the others (docs/adr/0055-*.md):
//
// - A waiter that looks is alive. After a turn has lapsed, the waiter that notices it gets the turn.
// - A lapsed turn puts the whole queue in doubt, so its entries are removed. A live waiter is back at its old place as
//   soon as it looks.
//
// A turn is pending if now < until <= now + max_reservation. Otherwise it has lapsed: it was not used, or the clock was
// set back. An entry counts if the waiter was seen within dead_after.
//
//   event    condition                                  reply                changes
//   -------  -----------------------------------------  -------------------  ------------------------------------------
//   acquire  held by the caller's id                    the same grant       own entry and turn go
//            held                                       contended            -
//            pending turn of another, none of its own   contended            -
//            counter at its end                         counter_at_end()     -
//            otherwise                                  granted              holder and counter; all turns and the own
//                                                                            entry go; another's turn had lapsed: doubt
//   release  live, own (break_lock: live, this fence)   released             holder goes; pass
//            otherwise                                  missing              -
//   extend   live, own                                  extended             expiry
//            otherwise                                  missing              -
//   pass     a turn is pending                                               -
//            otherwise                                                       entries at the front that do not count go,
//                                                                            and lapsed turns; the first entry that
//                                                                            counts gets the turn and is woken
//   join     queued                                     *                    seen, if older than refresh_seen; the
//                                                                            longer of both reservations
//            own turn pending, held                     *                    back to its place
//            own turn pending, free                     *                    -
//            otherwise                                  *                    own turn goes; an entry at the place that
//                                                                            the waiter brings, else at the end
//   leave                                                                    own entry and turn go; had a turn, and the
//                                                                            key is free: pass
//   look     neither queued nor a turn                  *                    an entry at the place that it brings
//            queued                                     *                    seen, if older than refresh_seen
//            free, no turn pending                      try                  gets the turn; another's turn had lapsed:
//                                                                            doubt
//   doubt                                                                    the oldest max_doubted other entries go
//   * held by the own id, or free and no pending turn of another: try. Otherwise: wait, with the time until it is free.
//
// Firestore keeps no queue: its views have no turns and no entries. Redis keeps a waiter's reservation in its place, so
// a waiter that is queued cannot lengthen it there; there, an entry counts while its waiter is subscribed, and a
// release that finds no such entry leaves a lapsed turn.
#pragma once

#include "core/reservation.hpp"

#include <syncguard/requests.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace syncguard::core {

// How often a live waiter shows a sign of life, and after which time without one it does not count.
inline constexpr std::chrono::milliseconds refresh_seen{10'000};
inline constexpr std::chrono::milliseconds dead_after{30'000};
// Entries of keys that are not used otherwise are removed after this time without a sign of life, when any waiter
// joins.
inline constexpr std::chrono::milliseconds purge_after{60'000};
// How many entries one step examines or removes.
inline constexpr std::size_t max_front = 64;
inline constexpr std::size_t max_doubted = 1000;
inline constexpr std::size_t max_purged = 256;

// A waiter's place in the queue of a key. Places grow: a new one is after all others, even if the clock was set back.
struct QueueEntry {
  LockId waiter;
  std::int64_t place = 0;
  std::chrono::milliseconds reservation = min_reservation;  // as requested
  std::optional<Timestamp> seen{};                          // nullopt: the store knows who is alive

  friend bool operator==(const QueueEntry&, const QueueEntry&) = default;
};

// A waiter that has left the queue, because the key is reserved for it.
struct Turn {
  QueueEntry entry;
  Timestamp until;

  friend bool operator==(const Turn&, const Turn&) = default;
};

// What the store has read in this step.
struct KeyView {
  Timestamp now;
  const LockRecord* holder = nullptr;  // as stored, live or not
  std::uint64_t counter = 0;           // for acquire
  std::span<const Turn> turns{};       // all turns of the key
  // The oldest entries. For look, one. For release, break_lock and leave, enough to include one that counts, but at
  // most max_front.
  std::span<const QueueEntry> front{};
  const QueueEntry* own = nullptr;  // for join and look: the caller's entry, wherever it stands
  std::int64_t last_place = 0;      // for join: the highest of all entries and turns
};

// What the store has to write in the same step, in the order of the members.
struct KeyChanges {
  std::optional<LockRecord> put_holder{};  // its fence is the new counter
  bool remove_holder = false;
  std::optional<Timestamp> set_expiry{};  // of the holder
  bool clear_turns = false;               // removes all turns of the key
  bool remove_own = false;                // removes the caller's entry and turn
  bool doubt = false;                     // removes the max_doubted oldest entries except the caller's
  std::vector<LockId> remove{};           // entries
  std::optional<QueueEntry> put_entry{};  // inserts it, or updates seen and reservation
  std::optional<Turn> put_turn{};         // its entry leaves the queue
  std::optional<LockId> wake{};           // after the step has taken effect

  // The store need not write, nor lock out other writers.
  [[nodiscard]] bool empty() const noexcept;
};

template <typename Reply>
struct Step {
  Reply reply;
  KeyChanges changes{};
};

// floor: the lowest fence that may be granted, see clock_floor(). Throws counter_at_end().
Step<AcquireReply> acquire(const KeyView& view, const AcquireRequest& request, std::uint64_t floor);
Step<ReleaseReply> release(const KeyView& view, const LockId& id);
Step<ExtendReply> extend(const KeyView& view, const LockId& id, std::chrono::milliseconds ttl);
// Whether there was such a lock.
Step<bool> break_lock(const KeyView& view, Fence fence);

struct WaiterRequest {
  LockId waiter;
  std::chrono::milliseconds reservation = min_reservation;
  // The place that the waiter had. nullopt if it is new, or was woken since. Always set for look.
  std::optional<std::int64_t> place{};
};

// What a waiter finds in the store.
struct WaiterReply {
  // How long the key stays held or reserved. nullopt: the waiter should try now.
  std::optional<std::chrono::milliseconds> free_in{};
  std::int64_t place = 0;
  bool is_first = false;  // no entry is ahead of this one
};

Step<WaiterReply> join(const KeyView& view, const WaiterRequest& request);
Step<WaiterReply> look(const KeyView& view, const WaiterRequest& request);
KeyChanges leave(const KeyView& view, const LockId& waiter);

[[nodiscard]] bool is_pending(const Turn& turn, Timestamp now) noexcept;
[[nodiscard]] bool counts(const QueueEntry& entry, Timestamp now) noexcept;

// When a waiter that was told to wait looks again, if nothing wakes it. The first one looks as soon as the key may be
// free. The others follow a little later, at random times, so that usually one of them looks. period: the longest
// pause. fraction: random, from 0 to 1.
[[nodiscard]] std::chrono::milliseconds next_look(const WaiterReply& reply, std::chrono::milliseconds period,
                                                  double fraction) noexcept;

}  // namespace syncguard::core
