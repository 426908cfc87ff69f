// The atomic steps of the embedded backend, each one transaction.
#pragma once

#include "backends/sqlite/connection.hpp"
#include "backends/sqlite/wake_files.hpp"
#include "os/clocks.hpp"

#include <syncguard/backend.hpp>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace syncguard::sqlite {

// Used by one thread at a time, like its connection. Each step uses the host's clock, read after the transaction has
// locked out all other writers.
class Store {
 public:
  // clock: the host's clock, unless a test passes another one.
  Store(const std::filesystem::path& path, Connection::Hooks hooks, std::function<Timestamp()> clock = os::system_now)
      : Store(Folder(path), std::move(hooks), std::move(clock)) {}

  AcquireReply acquire(const AcquireRequest& request, FenceSource fences = FenceSource::clock);
  ReleaseReply release(const LockId& id);
  ExtendReply extend(const LockId& id, std::chrono::milliseconds ttl);
  std::optional<LockRecord> find_live(const Key& key);
  std::optional<LockRecord> find_live(const LockId& id);
  void remove_if_long_dead(const Key& key);
  CleanupReply clean_up(const CleanupRequest& request);
  LockPage list(const ListRequest& request);
  KeyState inspect(const Key& key);
  bool break_lock(const Key& key, Fence fence);
  Fence raise_fence(const Key& key, Fence fence);

  // Adds the waiter to the end of the queue, unless it already has a place.
  void join(const Key& key, const LockId& waiter);
  // Removes the waiter from the queue. If it had its turn, the turn is passed on.
  void leave(const Key& key, const LockId& waiter);

  // The waiters for one key, oldest first, with the end of their turn if they have one.
  struct Waiting {
    std::string waiter;
    std::optional<Timestamp> turn_until;
  };
  using Queue = std::vector<Waiting>;
  // The waiters that have, or had, a turn, for any key. Usually there are few.
  std::vector<std::string> waiters_with_turn();
  // Returns the front of each queue, by stored key, for those of the given keys that are free and have waiters.
  std::map<std::string, Queue, std::less<>> free_queues(const std::set<std::string>& stored_keys);
  static std::string stored_key(const Key& key);
  // Whether a release can give this waiter a turn: it is in the queue, had no turn yet, and was seen in the last hour.
  bool has_place(const LockId& waiter);

  // Whether a waiter should try now: it has its turn, or no waiter has a turn and it is first in the queue. Otherwise,
  // when to check again even if nothing changes. stalled: the key is free, but the first waiter does not take it.
  struct QueueState {
    bool try_now = false;
    std::optional<Timestamp> recheck_at{};
    bool stalled = false;
  };
  static QueueState queue_state(const Queue& queue, const LockId& waiter, Timestamp now);
  // Gives the first waiter of a free key a turn. If it is dead, the end of that turn lets the next waiter try. After
  // unused turns, several waiters get the next turn together, four times as many each time, so a row of dead waiters
  // delays the first live one by less than half a second.
  void pass_stalled_turn(const Key& key);

  // For diagnosis.
  struct Health {
    std::string journal_mode;
    std::set<std::string> schema;  // the names of all tables and indexes
    std::string integrity;         // "ok", or the problem that SQLite reports
    std::uint64_t highest_counter = 0;
    Timestamp now;
  };
  // Begins a write transaction without writing, so it fails if the database is not writable.
  Health health();
  static std::set<std::string> expected_schema();
  // Creates missing tables and indexes.
  void complete_schema() { connection_.complete_schema(); }

  // Group commit, see Connection: all calls between begin_group and commit_group are one transaction.
  void begin_group(Durability least) noexcept;
  [[nodiscard]] bool group_has_begun() const noexcept { return connection_.group_has_begun(); }
  [[nodiscard]] bool group_is_lost() const noexcept { return connection_.group_is_lost(); }
  void commit_group();
  void abandon_group() noexcept { connection_.abandon_group(); }

  // Whether the path now leads to another file. Other processes then do not see changes made here.
  [[nodiscard]] bool has_moved() const noexcept { return connection_.has_moved(); }

 private:
  Store(Folder folder, Connection::Hooks hooks, std::function<Timestamp()> clock)
      : connection_(folder, std::move(hooks)), wake_files_(std::move(folder)), clock_(std::move(clock)) {}

  struct Turn {
    std::string waiter;
    Timestamp until;
  };
  struct StoredLock {
    LockRecord record;
    Timestamp renewed_at;  // the last grant or extension, by the clock of that time
  };

  // The lock in the current row of find_by_key, find_by_id or list_locks; nullopt if the row cannot be a lock.
  static std::optional<StoredLock> lock_in(const Query& query);
  // The same of the next row, if there is one.
  static std::optional<StoredLock> stored_lock(Query& query);
  std::optional<StoredLock> find(const std::string& lock_key);
  // Compares ids byte by byte, even if the database treats different ids as equal.
  std::optional<StoredLock> find(const LockId& id);
  std::variant<LockRecord, Missing> find_owned(const LockId& id, Timestamp now);
  // The ttl of the last grant or extension if the clock was set back since. The stored expiry is then meaningless, but
  // the lock cannot have more time left than this ttl.
  static std::optional<std::chrono::milliseconds> ttl_if_clock_was_set_back(const StoredLock& lock, Timestamp now);
  void set_expiry(const LockId& id, std::chrono::milliseconds ttl, Timestamp now);
  // Checked before the functions below: their statements use temporary tables, which cost more than the rest of an
  // uncontended acquire or release.
  bool has_waiters(const std::string& lock_key);
  ListedLock listed(const LockRecord& record, const std::string& lock_key);
  std::uint64_t fence_counter(const std::string& fence_key);
  void put_counter(const std::string& fence_key, std::uint64_t counter, const Key& key);
  // Returns the waiter's own turn if it has one now, otherwise the turn of another waiter.
  std::optional<Turn> find_turn(const std::string& lock_key, std::string_view waiter, Timestamp now);
  void remove_waiter(std::string_view waiter);
  // Removes the waiters whose turn is over. Returns their number.
  std::int64_t remove_after_turn(const std::string& lock_key, Timestamp now);
  // The ids of waiters that got a turn.
  using Woken = std::vector<std::string>;
  // Gives turns to up to `count` waiters, oldest first. Call notify() with them after the transaction.
  Woken pass_turn(const std::string& lock_key, std::int64_t count, Timestamp now);
  // Within a group, the notifications are sent after the group is committed.
  void notify(Woken woken);

  Connection connection_;
  WakeFiles wake_files_;
  const std::function<Timestamp()> clock_;
  Woken woken_by_group_;
};

}  // namespace syncguard::sqlite
