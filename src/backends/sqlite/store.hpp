// The atomic steps of the embedded backend, each one transaction.
#pragma once

#include "backends/sqlite/database.hpp"
#include "backends/sqlite/doorbell.hpp"

#include <syncguard/backend.hpp>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace syncguard::sqlite {

// One thread at a time, like the database it works on. The time of each step is the host's clock, read once nobody else
// can write any more.
class Store {
 public:
  Store(const std::filesystem::path& path, Database::Hooks hooks) : database_(path, std::move(hooks)), bell_(path) {}

  AcquireReply acquire(const AcquireRequest& request);
  ReleaseReply release(const LockId& id);
  ExtendReply extend(const LockId& id, std::chrono::milliseconds ttl);
  std::optional<LockRecord> find_live(const Key& key);
  std::optional<LockRecord> find_live(const LockId& id);
  void remove_if_long_dead(const Key& key);

  // At the end of the queue, unless the waiter has a place there already.
  void join(const Key& key, const LockId& waiter);
  // Gives up the place, and passes the turn on if it had come.
  void leave(const Key& key, const LockId& waiter);

  // Those who wait for one key, oldest first, with the end of their turn if it has come.
  struct Waiting {
    std::string waiter;
    std::optional<Timestamp> turn_until;
  };
  using Queue = std::vector<Waiting>;
  // The queues of all keys that nobody holds, by stored key.
  std::map<std::string, Queue, std::less<>> free_queues();
  static std::string stored_key(const Key& key);

  // Whether a waiter should try now: its turn has come, or nobody has a turn and it is the first in the queue.
  // Otherwise when to look again although nothing changed. Stalled: the key is free, but whoever is first does not
  // come.
  struct Prospect {
    bool try_now = false;
    std::optional<Timestamp> look_again_at{};
    bool stalled = false;
  };
  static Prospect prospect(const Queue& queue, const LockId& waiter, Timestamp now);
  // Gives the first in the queue of a free key a turn, whose end then makes way for the next: it may be dead.
  void move_on(const Key& key);

  // For diagnosis.
  struct Health {
    std::string journal_mode;
    std::set<std::string> schema;  // the names of all tables and indexes
    std::string integrity;         // "ok", or what SQLite finds wrong
  };
  // Also shows that the database can be written to, without writing.
  Health health();
  static std::set<std::string> expected_schema();
  // Makes the tables and indexes that are not there.
  void complete_schema() { database_.complete_schema(); }

  // Whether the file is not the one at its path any more: then nobody else sees what is done here.
  [[nodiscard]] bool has_moved() { return database_.has_moved(); }

 private:
  struct Turn {
    std::string waiter;
    Timestamp until;
  };

  std::optional<LockRecord> find(const std::string& lock_key);
  std::optional<LockRecord> find(const LockId& id);
  std::variant<LockRecord, Missing> find_owned(const LockId& id, Timestamp now);
  // The turn that is live now, if there is one.
  std::optional<Turn> find_turn(const std::string& lock_key, Timestamp now);
  // The given one, and those whose turn is over.
  void remove_waiters(const std::string& lock_key, std::string_view waiter, Timestamp now);
  // Whether there was somebody to give it to. Ring the bell after the commit, then.
  bool pass_turn(const std::string& lock_key, Timestamp now);

  Database database_;
  Doorbell bell_;
};

}  // namespace syncguard::sqlite
