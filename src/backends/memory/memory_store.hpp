// What the memory backend stores, and the atomic steps on it.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/memory.hpp>

#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>

namespace syncguard {

// Each member function is one atomic step. Those that let somebody go on return what to call for it, to be called
// without the mutex.
struct MemoryStore::State {
  using Wake = std::function<void()>;

  explicit State(std::function<Timestamp()> time) : clock(std::move(time)) {}

  AcquireReply acquire(const AcquireRequest& request);
  std::pair<ReleaseReply, Wake> release(const LockId& id);
  ExtendReply extend(const LockId& id, std::chrono::milliseconds ttl);
  bool is_locked(const Key& key) const;
  void remove_if_long_dead(const Key& key);
  std::optional<LockRecord> find_live(const Key& key) const;
  std::optional<LockRecord> find_live(const LockId& id) const;

  // At the end of the queue, unless the waiter has a place already.
  void join(const Key& key, const LockId& waiter, const Wake& wake);
  // Gives up the place, and the turn if it had come.
  Wake leave(const Key& key, const LockId& waiter);

  void put(const LockRecord& record);

  const std::function<Timestamp()> clock;
  mutable std::mutex mutex;
  std::unordered_map<Key, LockRecord> locks;
  std::unordered_map<LockId, Key> keys_by_id;
  // Never shrinks: a fence must not come again.
  std::unordered_map<Key, std::uint64_t> fence_counters;

 private:
  struct Waiter {
    LockId id;
    Wake wake;
  };
  // The key is kept for a waiter that was told of its turn, for a moment.
  struct Reservation {
    LockId waiter;
    Timestamp until;
  };

  std::variant<LockRecord*, Missing> find_owned(const LockId& id, Timestamp now);
  void remove(const LockRecord& record);
  Wake pass_turn(const Key& key, Timestamp now);
  void remove_waiter(const Key& key, const LockId& waiter);

  std::unordered_map<Key, std::deque<Waiter>> queues_;
  std::unordered_map<Key, Reservation> reservations_;
};

}  // namespace syncguard
