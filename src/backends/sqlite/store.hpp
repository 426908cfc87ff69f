// The atomic steps of the embedded backend, each one transaction.
#pragma once

#include "backends/sqlite/connection.hpp"
#include "backends/sqlite/wake_files.hpp"
#include "backends/waiters.hpp"
#include "core/key_rules.hpp"
#include "os/clocks.hpp"

#include <syncguard/backend.hpp>

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace syncguard::sqlite {

// Used by one thread at a time, like its connection. Each step that writes uses the host's clock, read after the
// transaction has locked out all other writers.
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

  core::WaiterReply join(const Key& key, const core::WaiterRequest& request);
  void leave(const Key& key, const LockId& waiter);
  // The looks of several waiters, in this order: usually only reads.
  std::vector<core::WaiterReply> look(std::span<const backends::Waiters::Look> looks);
  // Of any key. Usually there are few.
  std::vector<LockId> waiters_with_turn();

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
  void begin_group() noexcept;
  [[nodiscard]] bool group_has_begun() const noexcept { return connection_.group_has_begun(); }
  [[nodiscard]] bool group_is_lost() const noexcept { return connection_.group_is_lost(); }
  void commit_group();
  void abandon_group() noexcept { connection_.abandon_group(); }

  // Whether the path now leads to another file. Other processes then do not see changes made here.
  [[nodiscard]] bool has_moved() const noexcept { return connection_.has_moved(); }

 private:
  Store(Folder folder, Connection::Hooks hooks, std::function<Timestamp()> clock)
      : connection_(folder, std::move(hooks)), wake_files_(std::move(folder)), clock_(std::move(clock)) {}

  struct StoredLock {
    LockRecord record;
    Timestamp renewed_at;  // the last grant or extension, by the clock of that time
  };

  // What the rules need to know about a key.
  struct Found {
    Timestamp now;
    std::optional<StoredLock> lock{};
    std::uint64_t counter = 0;
    bool has_waiters = false;
    std::vector<core::Turn> turns{};
    std::vector<core::QueueEntry> front{};
    std::optional<core::QueueEntry> own{};
    std::int64_t last_place = 0;

    // Refers to this object.
    [[nodiscard]] core::KeyView view() const;
  };

  // The lock in the current row of find_by_key, find_by_id or list_locks; nullopt if the row cannot be a lock.
  static std::optional<StoredLock> lock_in(const Query& query);
  // The same of the next row, if there is one.
  static std::optional<StoredLock> stored_lock(Query& query);
  std::optional<StoredLock> find(const std::string& lock_key);
  // Compares ids byte by byte, even if the database treats different ids as equal.
  std::optional<StoredLock> find(const LockId& id);
  // The ttl of the last grant or extension if the clock was set back since. The stored expiry is then meaningless, but
  // the lock cannot have more time left than this ttl.
  static std::optional<std::chrono::milliseconds> ttl_if_clock_was_set_back(const StoredLock& lock, Timestamp now);
  // Another client's lock then gets that ttl, from now on the current clock: its holder may be alive. For steps that
  // may make the caller wait.
  void keep_ttl_if_clock_was_set_back(Found& found, const LockId& caller);
  static bool needs_new_expiry(const Found& found, const LockId& caller);
  void set_expiry(const LockId& id, std::chrono::milliseconds ttl, Timestamp now);
  ListedLock listed(const LockRecord& record, const std::string& lock_key, Timestamp now);
  std::uint64_t fence_counter(const std::string& fence_key);
  void put_counter(const std::string& fence_key, std::uint64_t counter, const Key& key);
  // Reads the turns, and as many of the oldest entries. Reads nothing else if the key has no waiters, which is usual.
  void find_queue(Found& found, const std::string& lock_key, std::size_t front);
  // The same for a step that may give a turn: until an entry counts.
  void find_next_turn(Found& found, const std::string& lock_key);
  void find_front(Found& found, const std::string& lock_key, std::size_t count);
  // Everything for a step of a waiter that joins or looks.
  Found find_for_waiter(const std::string& lock_key, const LockId& waiter);
  // Writes the changes of a step. own: the caller, if it may be in the queue. Call notify() with the result after the
  // transaction.
  using Woken = std::vector<std::string>;
  Woken apply(const core::KeyChanges& changes, const std::string& lock_key, const LockId* own = nullptr);
  // Within a group, the notifications are sent after the group is committed.
  void notify(const Woken& woken);

  Connection connection_;
  WakeFiles wake_files_;
  const std::function<Timestamp()> clock_;
  Woken woken_by_group_;
};

}  // namespace syncguard::sqlite
