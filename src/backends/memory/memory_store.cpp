#include "backends/memory/memory_store.hpp"

#include "core/fence_limit.hpp"
#include "core/liveness.hpp"
#include "core/reservation.hpp"

#include <algorithm>
#include <utility>

namespace syncguard {
AcquireReply MemoryStore::State::acquire(const AcquireRequest& request) {
  const std::lock_guard lock(mutex);
  const Timestamp now = clock();

  const auto held = locks.find(request.key);
  if (held != locks.end() && core::is_live(held->second.expires_at, now)) {
    const LockRecord& record = held->second;
    if (record.lock_id == request.lock_id) {
      remove_waiter(request.key, request.lock_id);
      return Granted{record.fence, record.expires_at, record.expires_at - now};
    }
    return Contended{core::free_in(record.expires_at, now)};
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
  locks.emplace(request.key, LockRecord{request.key, request.lock_id, expires_at, now, fence});
  keys_by_id.emplace(request.lock_id, request.key);
  reservations_.erase(request.key);
  remove_waiter(request.key, request.lock_id);
  return Granted{fence, expires_at, request.ttl};
}

std::variant<LockRecord*, Missing> MemoryStore::State::find_owned(const LockId& id, Timestamp now) {
  const auto key = keys_by_id.find(id);
  if (key == keys_by_id.end()) return Missing::not_found;
  const auto record = locks.find(key->second);
  if (record == locks.end() || record->second.lock_id != id) return Missing::not_found;
  if (!core::is_live(record->second.expires_at, now)) return Missing::expired;
  return &record->second;
}

std::pair<ReleaseReply, MemoryStore::State::Wake> MemoryStore::State::release(const LockId& id) {
  const std::lock_guard lock(mutex);
  const Timestamp now = clock();
  const auto owned = find_owned(id, now);
  if (const auto* missing = std::get_if<Missing>(&owned)) return {*missing, nullptr};
  const Key key = std::get<LockRecord*>(owned)->key;
  remove(*std::get<LockRecord*>(owned));
  return {Released{}, pass_turn(key, now)};
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
  if (found != locks.end() && core::is_removable(found->second.expires_at, clock())) remove(found->second);
}

std::optional<LockRecord> MemoryStore::State::find_live(const Key& key) const {
  const std::lock_guard lock(mutex);
  const auto found = locks.find(key);
  if (found == locks.end() || !core::is_live(found->second.expires_at, clock())) return std::nullopt;
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
  locks.emplace(record.key, record);
  keys_by_id.emplace(record.lock_id, record.key);
}

void MemoryStore::State::remove(const LockRecord& record) {
  keys_by_id.erase(record.lock_id);
  locks.erase(locks.find(record.key));
}

// ---------------------------------------------------------------------------------------------------------------------
// The queue: it decides order only, never safety.

void MemoryStore::State::join(const Key& key, const LockId& waiter, const Wake& wake) {
  const std::lock_guard lock(mutex);
  auto& queue = queues_[key];
  if (std::ranges::find(queue, waiter, &Waiter::id) == queue.end()) queue.push_back({waiter, wake});
}

void MemoryStore::State::remove_waiter(const Key& key, const LockId& waiter) {
  const auto queue = queues_.find(key);
  if (queue == queues_.end()) return;
  std::erase_if(queue->second, [&](const Waiter& entry) { return entry.id == waiter; });
  if (queue->second.empty()) queues_.erase(queue);
}

MemoryStore::State::Wake MemoryStore::State::pass_turn(const Key& key, Timestamp now) {
  const auto queue = queues_.find(key);
  if (queue == queues_.end()) return nullptr;
  Waiter oldest = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
  reservations_.insert_or_assign(key, Reservation{oldest.id, now + core::reservation_time});
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
  if (held != locks.end() && core::is_live(held->second.expires_at, now)) return nullptr;
  return pass_turn(key, now);
}

}  // namespace syncguard
