// The data of the memory backend, and the atomic steps on it.
#pragma once

#include "core/key_rules.hpp"

#include <syncguard/backend.hpp>
#include <syncguard/memory.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

// Each member function is one atomic step. Those that wake a waiter return a function, which the caller must call
// without the mutex.
struct MemoryStore::State {
  using Wake = std::function<void()>;

  explicit State(std::function<Timestamp()> time) : clock(std::move(time)) {}

  AcquireReply acquire(const AcquireRequest& request);
  std::pair<ReleaseReply, Wake> release(const LockId& id);
  ExtendReply extend(const LockId& id, std::chrono::milliseconds ttl);
  bool is_locked(const Key& key) const;
  void remove_if_long_dead(const Key& key);
  CleanupReply clean_up(const CleanupRequest& request);
  LockPage list(const ListRequest& request) const;
  KeyState inspect(const Key& key) const;
  std::pair<bool, Wake> break_lock(const Key& key, Fence fence);
  Fence raise_fence(const Key& key, Fence fence);
  std::optional<LockRecord> find_live(const Key& key) const;
  std::optional<LockRecord> find_live(const LockId& id) const;

  core::WaiterReply join(const Key& key, const core::WaiterRequest& request, const Wake& wake);
  core::WaiterReply look(const Key& key, const core::WaiterRequest& request, const Wake& wake);
  Wake leave(const Key& key, const LockId& waiter);

  void put(const LockRecord& record);

  struct Waiting {
    core::QueueEntry entry;
    Wake wake;
  };
  struct Queue {
    // By place. Two waiters may have the same one.
    std::map<std::pair<std::int64_t, LockId>, Waiting> waiting;
    // Found by id, because there may be thousands.
    std::unordered_map<LockId, std::int64_t> places;
    std::optional<core::Turn> turn;
  };

  const std::function<Timestamp()> clock;
  mutable std::mutex mutex;
  std::unordered_map<Key, LockRecord> locks;
  std::unordered_map<LockId, Key> keys_by_id;
  // Never shrinks, because fences must not repeat.
  std::unordered_map<Key, std::uint64_t> fence_counters;
  // Keys with waiters or a turn.
  std::unordered_map<Key, Queue> queues;

 private:
  // These need the mutex.
  // What the rules need to know about a key, and about a waiter for it. Valid until the key changes.
  [[nodiscard]] core::KeyView view_of(const Key& key, const LockId* waiter = nullptr) const;
  // The key of a lock; null if there is none.
  [[nodiscard]] const Key* key_of(const LockId& id) const;
  // Returns the waiter to wake. Changes nothing if it runs out of memory.
  Wake apply(const Key& key, core::KeyChanges&& changes, const LockId* own, const Wake* wake_own = nullptr);
  // Changes nothing if it runs out of memory.
  void insert(LockRecord record);
  void remove(const LockRecord& record);
  [[nodiscard]] ListedLock listed(const LockRecord& record) const;
  void put_entry(Queue& queue, const core::QueueEntry& entry, const Wake& wake);
  // Returns how to wake it.
  static Wake remove_entry(Queue& queue, const LockId& waiter) noexcept;
};

}  // namespace v0_1
}  // namespace syncguard
