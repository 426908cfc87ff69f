#include "backends/memory/store.hpp"

#include "core/expiry.hpp"
#include "core/fence_limit.hpp"
#include "core/listed.hpp"
#include "core/reservation.hpp"

#include <syncguard/liveness.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace syncguard {
inline namespace v0_1 {
AcquireReply MemoryStore::State::acquire(const AcquireRequest& request) {
  const std::lock_guard lock(mutex);
  const Timestamp now = clock();

  const auto held = locks.find(request.key);
  if (held != locks.end() && is_live(held->second.expires_at, now)) {
    const LockRecord& record = held->second;
    if (record.lock_id == request.lock_id) {
      remove_waiter(request.key, request.lock_id);
      // The clock may have been set back.
      return Granted{record.fence, record.expires_at, std::min(record.expires_at - now, request.ttl)};
    }
    return Contended{free_in(record.expires_at, now)};
  }
  const auto reserved = reservations_.find(request.key);
  if (reserved != reservations_.end() && reserved->second.until > now && reserved->second.waiter != request.lock_id) {
    return Contended{reserved->second.until - now};
  }

  std::uint64_t& counter = fence_counters[request.key];
  const Fence fence = core::next_fence(counter);
  if (held != locks.end()) remove(held->second);
  counter = fence.value();
  const Timestamp expires_at = now + request.ttl;
  insert({.key = request.key,
          .lock_id = request.lock_id,
          .expires_at = expires_at,
          .acquired_at = now,
          .fence = fence,
          .holder = request.holder});
  reservations_.erase(request.key);
  remove_waiter(request.key, request.lock_id);
  return Granted{fence, expires_at, request.ttl};
}

std::variant<LockRecord*, Missing> MemoryStore::State::find_owned(const LockId& id, Timestamp now) {
  const auto key = keys_by_id.find(id);
  if (key == keys_by_id.end()) return Missing::not_found;
  const auto record = locks.find(key->second);
  if (record == locks.end() || record->second.lock_id != id) return Missing::not_found;
  if (!is_live(record->second.expires_at, now)) return Missing::expired;
  return &record->second;
}

std::pair<ReleaseReply, MemoryStore::State::Wake> MemoryStore::State::release(const LockId& id) {
  const std::lock_guard lock(mutex);
  const Timestamp now = clock();
  const auto owned = find_owned(id, now);
  if (const auto* missing = std::get_if<Missing>(&owned)) return {*missing, nullptr};
  const Key key = std::get<LockRecord*>(owned)->key;
  auto wake = pass_turn(key, now);  // first, because it may throw
  remove(*std::get<LockRecord*>(owned));
  return {Released{}, std::move(wake)};
}

ExtendReply MemoryStore::State::extend(const LockId& id, std::chrono::milliseconds ttl) {
  const std::lock_guard lock(mutex);
  const Timestamp now = clock();
  const auto owned = find_owned(id, now);
  if (const auto* missing = std::get_if<Missing>(&owned)) return *missing;
  auto& record = *std::get<LockRecord*>(owned);
  record.expires_at = now + ttl;
  return Extended{record.expires_at, ttl};
}

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
  const auto queue = queues_.find(record.key);
  return core::listed(record, queue == queues_.end() ? 0 : queue->second.waiters.size());
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
  if (found != locks.end() && is_live(found->second.expires_at, state.now)) state.lock = listed(found->second);
  const auto counter = fence_counters.find(key);
  if (counter != fence_counters.end()) state.fence = Fence(counter->second);
  return state;
}

std::pair<bool, MemoryStore::State::Wake> MemoryStore::State::break_lock(const Key& key, Fence fence) {
  const std::lock_guard lock(mutex);
  const Timestamp now = clock();
  const auto found = locks.find(key);
  if (found == locks.end() || found->second.fence != fence || !is_live(found->second.expires_at, now)) {
    return {false, nullptr};
  }
  auto wake = pass_turn(key, now);  // first, because it may throw
  remove(found->second);
  return {true, std::move(wake)};
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

// ---------------------------------------------------------------------------------------------------------------------
// The queue: it decides order only, never safety.

void MemoryStore::State::join(const Key& key, const LockId& waiter, const Wake& wake) {
  const std::lock_guard lock(mutex);
  auto& [waiters, places] = queues_[key];
  if (places.contains(waiter)) return;
  try {
    waiters.push_back({waiter, wake});
    places.emplace(waiter, std::prev(waiters.end()));
  } catch (...) {
    if (waiters.size() != places.size()) waiters.pop_back();
    if (waiters.empty()) queues_.erase(key);
    throw;
  }
}

void MemoryStore::State::remove_waiter(const Key& key, const LockId& waiter) {
  const auto queue = queues_.find(key);
  if (queue == queues_.end()) return;
  auto& [waiters, places] = queue->second;
  const auto place = places.find(waiter);
  if (place == places.end()) return;
  waiters.erase(place->second);
  places.erase(place);
  if (waiters.empty()) queues_.erase(queue);
}

MemoryStore::State::Wake MemoryStore::State::pass_turn(const Key& key, Timestamp now) {
  const auto queue = queues_.find(key);
  if (queue == queues_.end()) return nullptr;
  // First, because it may throw.
  reservations_.insert_or_assign(key, Reservation{queue->second.waiters.front().id, now + core::reservation_time});
  Waiter oldest = std::move(queue->second.waiters.front());
  queue->second.waiters.pop_front();
  queue->second.places.erase(oldest.id);
  if (queue->second.waiters.empty()) queues_.erase(queue);
  return std::move(oldest.wake);
}

MemoryStore::State::Wake MemoryStore::State::leave(const Key& key, const LockId& waiter) {
  const std::lock_guard lock(mutex);
  remove_waiter(key, waiter);
  const auto reserved = reservations_.find(key);
  if (reserved == reservations_.end() || reserved->second.waiter != waiter) return nullptr;
  reservations_.erase(reserved);
  const Timestamp now = clock();
  const auto held = locks.find(key);
  if (held != locks.end() && is_live(held->second.expires_at, now)) return nullptr;
  return pass_turn(key, now);
}

}  // namespace v0_1
}  // namespace syncguard
