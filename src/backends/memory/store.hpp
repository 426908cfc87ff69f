// The data of the memory backend, and the atomic steps on it.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/memory.hpp>

#include <functional>
#include <list>
#include <mutex>
#include <unordered_map>

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

  // Adds the waiter to the end of the queue, unless it already has a place.
  void join(const Key& key, const LockId& waiter, const Wake& wake);
  // Removes the waiter, and passes on its turn if it had one.
  Wake leave(const Key& key, const LockId& waiter);

  void put(const LockRecord& record);

  const std::function<Timestamp()> clock;
  mutable std::mutex mutex;
  std::unordered_map<Key, LockRecord> locks;
  std::unordered_map<LockId, Key> keys_by_id;
  // Never shrinks, because fences must not repeat.
  std::unordered_map<Key, std::uint64_t> fence_counters;

 private:
  struct Waiter {
    LockId id;
    Wake wake;
  };
  // Waiters of one key in the order in which they joined. Found by id, because there may be thousands.
  struct Queue {
    std::list<Waiter> waiters;
    std::unordered_map<LockId, std::list<Waiter>::iterator> places;
  };
  // Reserves the key briefly for the waiter whose turn it is.
  struct Reservation {
    LockId waiter;
    Timestamp until;
  };

  std::variant<LockRecord*, Missing> find_owned(const LockId& id, Timestamp now);
  // Changes nothing if it runs out of memory.
  void insert(LockRecord record);
  void remove(const LockRecord& record);
  [[nodiscard]] ListedLock listed(const LockRecord& record) const;
  Wake pass_turn(const Key& key, Timestamp now);
  void remove_waiter(const Key& key, const LockId& waiter);

  std::unordered_map<Key, Queue> queues_;
  std::unordered_map<Key, Reservation> reservations_;
};

}  // namespace v0_1
}  // namespace syncguard
