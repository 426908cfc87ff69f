#include "backends/memory/store.hpp"

#include "core/expiry.hpp"
#include "core/listed.hpp"

#include <syncguard/liveness.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

// ---------------------------------------------------------------------------------------------------------------------
// Steps that follow the rules of a key

core::KeyView MemoryStore::State::view_of(const Key& key, const LockId* waiter) const {
  core::KeyView view{.now = clock()};
  if (const auto held = locks.find(key); held != locks.end()) view.holder = &held->second;
  const auto queue = queues.find(key);
  if (queue == queues.end()) return view;
  const auto& [waiting, places, turn] = queue->second;
  if (turn) {
    view.turns = {&*turn, 1};
    view.last_place = turn->entry.place;
  }
  if (!waiting.empty()) {
    // Every entry counts, so one is enough.
    view.front = {&waiting.begin()->second.entry, 1};
    view.last_place = std::max(view.last_place, waiting.rbegin()->first.first);
  }
  if (waiter == nullptr) return view;
  if (const auto place = places.find(*waiter); place != places.end()) {
    view.own = &waiting.at({place->second, *waiter}).entry;
  }
  return view;
}

const Key* MemoryStore::State::key_of(const LockId& id) const {
  const auto found = keys_by_id.find(id);
  return found != keys_by_id.end() ? &found->second : nullptr;
}

AcquireReply MemoryStore::State::acquire(const AcquireRequest& request) {
  const std::lock_guard lock(mutex);
  auto view = view_of(request.key);
  if (const auto counter = fence_counters.find(request.key); counter != fence_counters.end()) {
    view.counter = counter->second;
  }
  auto [reply, changes] = core::acquire(view, request, 0);
  apply(request.key, std::move(changes), &request.lock_id);
  return reply;
}

std::pair<ReleaseReply, MemoryStore::State::Wake> MemoryStore::State::release(const LockId& id) {
  const std::lock_guard lock(mutex);
  const auto* stored = key_of(id);
  if (stored == nullptr) return {Missing::not_found, nullptr};
  const Key key = *stored;
  auto [reply, changes] = core::release(view_of(key), id);
  return {reply, apply(key, std::move(changes), nullptr)};
}

ExtendReply MemoryStore::State::extend(const LockId& id, std::chrono::milliseconds ttl) {
  const std::lock_guard lock(mutex);
  const auto* key = key_of(id);
  if (key == nullptr) return Missing::not_found;
  auto [reply, changes] = core::extend(view_of(*key), id, ttl);
  apply(*key, std::move(changes), nullptr);
  return reply;
}

std::pair<bool, MemoryStore::State::Wake> MemoryStore::State::break_lock(const Key& key, Fence fence) {
  const std::lock_guard lock(mutex);
  auto [broken, changes] = core::break_lock(view_of(key), fence);
  return {broken, apply(key, std::move(changes), nullptr)};
}

core::WaiterReply MemoryStore::State::join(const Key& key, const core::WaiterRequest& request, const Wake& wake) {
  const std::lock_guard lock(mutex);
  auto [reply, changes] = core::join(view_of(key, &request.waiter), request);
  apply(key, std::move(changes), &request.waiter, &wake);
  return reply;
}

core::WaiterReply MemoryStore::State::look(const Key& key, const core::WaiterRequest& request, const Wake& wake) {
  const std::lock_guard lock(mutex);
  auto [reply, changes] = core::look(view_of(key, &request.waiter), request);
  apply(key, std::move(changes), &request.waiter, &wake);
  return reply;
}

MemoryStore::State::Wake MemoryStore::State::leave(const Key& key, const LockId& waiter) {
  const std::lock_guard lock(mutex);
  return apply(key, core::leave(view_of(key, &waiter), waiter), &waiter);
}

MemoryStore::State::Wake MemoryStore::State::apply(const Key& key, core::KeyChanges&& changes, const LockId* own,
                                                   const Wake* wake_own) {
  // What needs memory comes first.
  if (changes.put_holder) {
    auto& counter = fence_counters[key];
    const auto fence = changes.put_holder->fence.value();
    if (const auto expired = locks.find(key); expired != locks.end()) remove(expired->second);
    insert(std::move(*changes.put_holder));
    counter = fence;
  }
  if (changes.put_entry || changes.put_turn) {
    auto& queue = queues[key];
    if (changes.put_entry) put_entry(queue, *changes.put_entry, *wake_own);
  }
  if (changes.remove_holder) remove(locks.find(key)->second);
  if (changes.set_expiry) locks.find(key)->second.expires_at = *changes.set_expiry;

  const auto found = queues.find(key);
  if (found == queues.end()) return nullptr;
  Queue& queue = found->second;
  const bool own_turn_goes = changes.remove_own && queue.turn && queue.turn->entry.waiter == *own;
  if (changes.clear_turns || own_turn_goes) queue.turn.reset();
  if (changes.remove_own && !changes.put_entry) remove_entry(queue, *own);
  if (changes.doubt) {
    // It gets a turn, and does not count.
    remove_entry(queue, *own);
    for (std::size_t removed = 0; removed < core::max_doubted && !queue.waiting.empty(); ++removed) {
      remove_entry(queue, queue.waiting.begin()->second.entry.waiter);
    }
  }
  Wake wake;
  if (changes.put_turn) {
    wake = remove_entry(queue, changes.put_turn->entry.waiter);
    queue.turn = changes.put_turn;
  }
  if (queue.waiting.empty() && !queue.turn) queues.erase(found);
  return changes.wake ? std::move(wake) : nullptr;
}

void MemoryStore::State::put_entry(Queue& queue, const core::QueueEntry& entry, const Wake& wake) {
  const auto [place, is_new] = queue.places.try_emplace(entry.waiter, entry.place);
  try {
    const auto put = queue.waiting.insert_or_assign({place->second, entry.waiter}, Waiting{entry, wake});
    // The destructor of a waiter's ticket removes its entry, so every entry counts.
    put.first->second.entry.seen.reset();
  } catch (...) {
    if (is_new) queue.places.erase(place);
    throw;
  }
}

MemoryStore::State::Wake MemoryStore::State::remove_entry(Queue& queue, const LockId& waiter) noexcept {
  const auto place = queue.places.find(waiter);
  if (place == queue.places.end()) return nullptr;
  const auto found = queue.waiting.find({place->second, waiter});
  Wake wake = std::move(found->second.wake);
  queue.places.erase(place);
  queue.waiting.erase(found);
  return wake;
}

// ---------------------------------------------------------------------------------------------------------------------
// Other steps

bool MemoryStore::State::is_locked(const Key& key) const { return find_live(key).has_value(); }

void MemoryStore::State::remove_if_long_dead(const Key& key) {
  const std::lock_guard lock(mutex);
  const auto found = locks.find(key);
  if (found != locks.end() && is_removable(found->second.expires_at, clock())) remove(found->second);
}

CleanupReply MemoryStore::State::clean_up(const CleanupRequest& request) {
  const std::lock_guard lock(mutex);
  const auto before = core::removable_before(clock(), request.older_than);
  const auto is_expired = [before](const auto& entry) { return entry.second.expires_at < before; };
  if (request.mode == CleanupRequest::Mode::count) {
    return {.count = static_cast<std::size_t>(std::ranges::count_if(locks, is_expired))};
  }
  std::vector<LockRecord> expired;
  for (const auto& entry : locks) {
    if (!is_expired(entry)) continue;
    expired.push_back(entry.second);
    if (expired.size() == request.limit) break;
  }
  for (const auto& record : expired) remove(record);
  return {.count = expired.size(), .more = expired.size() == request.limit};
}

ListedLock MemoryStore::State::listed(const LockRecord& record) const {
  const auto queue = queues.find(record.key);
  return core::listed(record, queue == queues.end() ? 0 : queue->second.waiting.size());
}

LockPage MemoryStore::State::list(const ListRequest& request) const {
  const std::lock_guard lock(mutex);
  LockPage page;
  page.now = clock();
  std::vector<const LockRecord*> found;
  for (const auto& [key, record] : locks) {
    const bool is_wanted = key.str().starts_with(request.prefix) && key.str() > request.cursor;
    if (is_wanted && is_live(record.expires_at, page.now)) found.push_back(&record);
  }
  const auto count = std::min(request.limit, found.size());
  const auto end = found.begin() + static_cast<std::ptrdiff_t>(count);
  std::ranges::partial_sort(found, end, {},
                            [](const LockRecord* record) -> const std::string& { return record->key.str(); });
  for (const auto* record : std::span(found).first(count)) page.locks.push_back(listed(*record));
  if (count < found.size()) page.cursor = page.locks.back().key.str();
  return page;
}

KeyState MemoryStore::State::inspect(const Key& key) const {
  const std::lock_guard lock(mutex);
  KeyState state;
  state.now = clock();
  const auto found = locks.find(key);
  if (found != locks.end() && is_live(found->second.expires_at, state.now)) {
    core::set_holder(state, listed(found->second));
  }
  const auto counter = fence_counters.find(key);
  if (counter != fence_counters.end()) state.fence = Fence(counter->second);
  return state;
}

Fence MemoryStore::State::raise_fence(const Key& key, Fence fence) {
  const std::lock_guard lock(mutex);
  auto& counter = fence_counters[key];
  counter = std::max(counter, fence.value());
  return Fence(counter);
}

std::optional<LockRecord> MemoryStore::State::find_live(const Key& key) const {
  const std::lock_guard lock(mutex);
  const auto found = locks.find(key);
  if (found == locks.end() || !is_live(found->second.expires_at, clock())) return std::nullopt;
  return found->second;
}

std::optional<LockRecord> MemoryStore::State::find_live(const LockId& id) const {
  std::optional<Key> key;
  {
    const std::lock_guard lock(mutex);
    const auto found = keys_by_id.find(id);
    if (found == keys_by_id.end()) return std::nullopt;
    key = found->second;
  }
  auto record = find_live(*key);
  if (!record || record->lock_id != id) return std::nullopt;
  return record;
}

void MemoryStore::State::put(const LockRecord& record) {
  const std::lock_guard lock(mutex);
  const auto held = locks.find(record.key);
  if (held != locks.end()) remove(held->second);
  insert(record);
}

void MemoryStore::State::insert(LockRecord record) {
  const auto id = keys_by_id.insert_or_assign(record.lock_id, record.key).first;
  try {
    locks.emplace(Key(record.key), std::move(record));
  } catch (...) {
    keys_by_id.erase(id);
    throw;
  }
}

void MemoryStore::State::remove(const LockRecord& record) {
  keys_by_id.erase(record.lock_id);
  locks.erase(locks.find(record.key));
}

}  // namespace v0_1
}  // namespace syncguard
