#include "core/key_rules.hpp"

#include "core/fence_limit.hpp"

#include <syncguard/liveness.hpp>

#include <algorithm>

namespace syncguard::core {
namespace {

using std::chrono::milliseconds;

bool is_held(const KeyView& view) { return view.holder != nullptr && is_live(view.holder->expires_at, view.now); }

const Turn* own_turn(const KeyView& view, const LockId& waiter) {
  const auto found = std::ranges::find(view.turns, waiter, [](const Turn& turn) { return turn.entry.waiter; });
  return found != view.turns.end() ? &*found : nullptr;
}

bool has_pending_turn(const KeyView& view, const LockId& waiter) {
  const auto* own = own_turn(view, waiter);
  return own != nullptr && is_pending(*own, view.now);
}

// The end of a pending turn of another waiter.
std::optional<Timestamp> reserved_until(const KeyView& view, const LockId& waiter) {
  for (const auto& turn : view.turns) {
    if (turn.entry.waiter != waiter && is_pending(turn, view.now)) return turn.until;
  }
  return std::nullopt;
}

bool has_lapsed_turn_of_another(const KeyView& view, const LockId& waiter) {
  return std::ranges::any_of(
      view.turns, [&](const Turn& turn) { return turn.entry.waiter != waiter && !is_pending(turn, view.now); });
}

Turn turn_of(const QueueEntry& entry, Timestamp now) { return {entry, now + clamp_reservation(entry.reservation)}; }

// Gives the turn to the oldest waiter that counts. The turns of `leaving` do not matter.
void pass(const KeyView& view, KeyChanges& changes, const LockId* leaving = nullptr) {
  const auto blocks = [&](const Turn& turn) {
    return (leaving == nullptr || turn.entry.waiter != *leaving) && is_pending(turn, view.now);
  };
  if (std::ranges::any_of(view.turns, blocks)) return;
  changes.clear_turns = !view.turns.empty();
  for (const auto& entry : view.front.first(std::min(view.front.size(), max_front))) {
    if (leaving != nullptr && entry.waiter == *leaving) continue;
    if (counts(entry, view.now)) {
      changes.put_turn = turn_of(entry, view.now);
      changes.wake = entry.waiter;
      return;
    }
    changes.remove.push_back(entry.waiter);
  }
}

template <typename Reply>
std::optional<Step<Reply>> missing(const KeyView& view, bool is_this_lock) {
  if (view.holder == nullptr || !is_this_lock) return Step<Reply>{Missing::not_found};
  if (!is_held(view)) return Step<Reply>{Missing::expired};
  return std::nullopt;
}

// How long this waiter has to wait. nullopt: it should try.
std::optional<milliseconds> free_in_for(const KeyView& view, const LockId& waiter) {
  if (is_held(view)) {
    if (view.holder->lock_id == waiter) return std::nullopt;
    return free_in(view.holder->expires_at, view.now);
  }
  if (has_pending_turn(view, waiter)) return std::nullopt;
  const auto until = reserved_until(view, waiter);
  return until ? std::optional(*until - view.now) : std::nullopt;
}

// A waiter that is queued shows that it is alive.
std::optional<QueueEntry> refreshed(const QueueEntry& entry, Timestamp now, milliseconds reservation) {
  QueueEntry changed = entry;
  if (entry.seen && (now - *entry.seen > refresh_seen || *entry.seen > now)) changed.seen = now;
  changed.reservation = std::max(entry.reservation, reservation);
  return changed != entry ? std::optional(changed) : std::nullopt;
}

bool is_first_at(const KeyView& view, std::int64_t place) {
  return view.front.empty() || view.front.front().place >= place;
}

}  // namespace

bool KeyChanges::empty() const noexcept {
  return !put_holder && !remove_holder && !set_expiry && !clear_turns && !remove_own && !doubt && remove.empty() &&
         !put_entry && !put_turn;
}

bool is_pending(const Turn& turn, Timestamp now) noexcept {
  return turn.until > now && turn.until <= now + max_reservation;
}

bool counts(const QueueEntry& entry, Timestamp now) noexcept {
  return !entry.seen || (*entry.seen >= now - dead_after && *entry.seen <= now + dead_after);
}

Step<AcquireReply> acquire(const KeyView& view, const AcquireRequest& request, std::uint64_t floor) {
  const LockId& id = request.lock_id;
  if (is_held(view)) {
    const LockRecord& held = *view.holder;
    if (held.lock_id != id) return {Contended{free_in(held.expires_at, view.now)}};
    // More than the ttl is left if the clock was set back.
    const auto remaining = std::min(held.expires_at - view.now, request.ttl);
    return {Granted{held.fence, held.expires_at, remaining}, {.remove_own = true}};
  }
  if (const auto wait = free_in_for(view, id)) return {Contended{*wait}};
  const Fence fence = next_fence(view.counter, floor);
  const Timestamp expires_at = view.now + request.ttl;
  Step<AcquireReply> step{Granted{fence, expires_at, request.ttl}};
  step.changes.put_holder = LockRecord{.key = request.key,
                                       .lock_id = id,
                                       .expires_at = expires_at,
                                       .acquired_at = view.now,
                                       .fence = fence,
                                       .holder = request.holder};
  step.changes.clear_turns = !view.turns.empty();
  step.changes.remove_own = true;
  step.changes.doubt = has_lapsed_turn_of_another(view, id);
  return step;
}

Step<ReleaseReply> release(const KeyView& view, const LockId& id) {
  if (const auto step = missing<ReleaseReply>(view, view.holder != nullptr && view.holder->lock_id == id)) return *step;
  Step<ReleaseReply> step{Released{}, {.remove_holder = true}};
  pass(view, step.changes);
  return step;
}

Step<ExtendReply> extend(const KeyView& view, const LockId& id, milliseconds ttl) {
  if (const auto step = missing<ExtendReply>(view, view.holder != nullptr && view.holder->lock_id == id)) return *step;
  return {Extended{view.now + ttl, ttl}, {.set_expiry = view.now + ttl}};
}

Step<bool> break_lock(const KeyView& view, Fence fence) {
  if (!is_held(view) || view.holder->fence != fence) return {false};
  Step<bool> step{true, {.remove_holder = true}};
  pass(view, step.changes);
  return step;
}

Step<WaiterReply> join(const KeyView& view, const WaiterRequest& request) {
  Step<WaiterReply> step{{.free_in = free_in_for(view, request.waiter)}};
  const auto* turn = own_turn(view, request.waiter);
  const bool has_turn = has_pending_turn(view, request.waiter);
  if (view.own != nullptr) {
    step.reply.place = view.own->place;
    step.changes.put_entry = refreshed(*view.own, view.now, request.reservation);
  } else if (has_turn && !is_held(view)) {
    step.reply.place = turn->entry.place;
  } else {
    const auto at_end = std::max<std::int64_t>(view.now.time_since_epoch().count(), view.last_place + 1);
    step.reply.place = has_turn ? turn->entry.place : request.place.value_or(at_end);
    step.changes.remove_own = turn != nullptr;
    step.changes.put_entry = QueueEntry{request.waiter, step.reply.place, request.reservation, view.now};
  }
  step.reply.is_first = is_first_at(view, step.reply.place);
  return step;
}

Step<WaiterReply> look(const KeyView& view, const WaiterRequest& request) {
  Step<WaiterReply> step{{.free_in = free_in_for(view, request.waiter), .place = *request.place}};
  // It has the lock, and only has to be told.
  if (is_held(view) && !step.reply.free_in) return step;
  const auto* turn = own_turn(view, request.waiter);
  QueueEntry entry{request.waiter, *request.place, request.reservation, view.now};
  if (view.own != nullptr) {
    step.changes.put_entry = refreshed(*view.own, view.now, request.reservation);
    entry = step.changes.put_entry.value_or(*view.own);
  } else if (turn != nullptr) {
    entry = turn->entry;
  } else {
    step.changes.put_entry = entry;
  }
  step.reply.place = entry.place;
  step.reply.is_first = is_first_at(view, entry.place);
  if (step.reply.free_in || has_pending_turn(view, request.waiter)) return step;
  step.changes = {.clear_turns = !view.turns.empty(),
                  .doubt = has_lapsed_turn_of_another(view, request.waiter),
                  .put_turn = turn_of(entry, view.now)};
  return step;
}

KeyChanges leave(const KeyView& view, const LockId& waiter) {
  KeyChanges changes{.remove_own = true};
  if (own_turn(view, waiter) != nullptr && !is_held(view)) pass(view, changes, &waiter);
  return changes;
}

milliseconds next_look(const WaiterReply& reply, milliseconds period, double fraction) noexcept {
  constexpr double min_spread = 10;
  constexpr double max_spread = 60;
  if (!reply.free_in) return period;
  const milliseconds after(
      reply.is_first ? 1 : static_cast<std::int64_t>(min_spread + fraction * (max_spread - min_spread)));
  return std::min(period, std::max(*reply.free_in, milliseconds(0)) + after);
}

}  // namespace syncguard::core
