// The transactions of the SQLite backend, without threads.

#include "backends/sqlite/store.hpp"
#include "backends/sqlite/file.hpp"
#include "os/clocks.hpp"
#include "support/expect_error.hpp"
#include "support/liveness_cases.hpp"
#include "support/sqlite_client.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;

// File system types by name where the system headers define one, by number otherwise.
TEST(SqliteFile, RecognizesNetworkFileSystems) {
  for (const std::int64_t type :
       {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, AFS_SUPER_MAGIC, CODA_SUPER_MAGIC, V9FS_MAGIC, OCFS2_SUPER_MAGIC}) {
    EXPECT_EQ(sqlite::file_system_of_type(type), sqlite::FileSystem::networked) << std::hex << type;
  }
  for (const std::int64_t type : {0xFE534D42, 0xFF534D42, 0x786F4256U}) {
    EXPECT_EQ(sqlite::file_system_of_type(type), sqlite::FileSystem::networked) << "SMB 2, CIFS and vboxsf";
  }
  for (const std::int64_t type : {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC}) {
    EXPECT_EQ(sqlite::file_system_of_type(type), sqlite::FileSystem::local) << std::hex << type;
  }
  EXPECT_EQ(sqlite::file_system_of_type(FUSE_SUPER_MAGIC), sqlite::FileSystem::fuse);
  EXPECT_EQ(sqlite::file_system_of("/proc"), sqlite::FileSystem::local);
}

TEST(SqliteFile, RecognizesNetworkFileSystemsInUserSpace) {
  const std::string mounts =
      "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
      "40 22 0:50 / /mnt/ssh rw,nosuid - fuse.sshfs me@host:/ rw\n"
      "41 22 0:51 / /mnt/ntfs rw - fuseblk /dev/sdb1 rw\n"
      "42 22 0:52 / /mnt/share rw shared:9 master:3 - virtiofs share rw\n";
  const auto type_of = [&](unsigned minor) {
    std::istringstream lines(mounts);
    return sqlite::file_system_in_user_space(lines, makedev(0, minor));
  };
  EXPECT_EQ(type_of(50), sqlite::FileSystem::networked);
  EXPECT_EQ(type_of(51), sqlite::FileSystem::fuse);
  EXPECT_EQ(type_of(52), sqlite::FileSystem::networked);
  EXPECT_EQ(type_of(99), sqlite::FileSystem::fuse) << "a mount that this process does not see";
}

sqlite::Connection::Hooks hooks() {
  const auto yes = [] { return true; };
  return {.keep_waiting = [] { return false; }, .keep_running = yes, .may_write = yes};
}

struct SqliteStore : ::testing::Test {
  TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "locks.db";
};

// Only the clock is simulated.
TEST_F(SqliteStore, EveryOperationAgreesOnLiveness) {
  for (const auto& [expires_at, now, live] : liveness_cases) {
    SCOPED_TRACE(std::to_string(expires_at) + " at " + std::to_string(now));
    const TemporaryFolder fresh;
    Timestamp time{};
    sqlite::Store store(fresh.path() / "locks.db", hooks(), [&] { return time; });
    const auto expiry = Timestamp(std::chrono::milliseconds(expires_at));
    // Computed outside the lambda, because clang 14 cannot capture structured bindings.
    const auto since_expiry = std::chrono::milliseconds(now - expires_at);
    const auto lock = [&](const Key& key) {
      const auto id = LockId::generate();
      time = expiry - 5s;
      EXPECT_TRUE(std::holds_alternative<Granted>(store.acquire({key, id, 5s}, FenceSource::counter)));
      time += since_expiry + 5s;
      return id;
    };
    const auto found = lock("found");
    EXPECT_EQ(store.find_live(Key("found")).has_value(), live);
    EXPECT_EQ(store.find_live(found).has_value(), live);
    EXPECT_EQ(std::holds_alternative<Contended>(store.acquire({"found", LockId::generate(), 5s})), live);

    const auto repeated = lock("repeated");
    const auto again = std::get<Granted>(store.acquire({"repeated", repeated, 5s}, FenceSource::counter));
    EXPECT_EQ(again.fence, Fence(live ? 1 : 2)) << "a live lock must be granted again, a dead one replaced";

    EXPECT_EQ(std::holds_alternative<Extended>(store.extend(lock("extended"), 5s)), live);
    EXPECT_EQ(std::holds_alternative<Released>(store.release(lock("released"))), live);

    lock("seen");
    EXPECT_EQ(store.inspect("seen").lock.has_value(), live);
    EXPECT_EQ(store.list({.prefix = "seen"}).locks.size(), live ? 1U : 0U);
    EXPECT_EQ(store.break_lock("seen", Fence(1)), live);

    const auto has_turn = [&](const LockId& waiter) {
      return std::ranges::count(store.waiters_with_turn(), waiter.str()) == 1;
    };
    // Locks the key, and adds a waiter.
    const auto wait_for = [&](const Key& key) {
      lock(key);
      const auto waiter = LockId::generate();
      store.join(key, waiter);
      return waiter;
    };
    (void)wait_for("free");
    EXPECT_EQ(store.free_queues({sqlite::Store::stored_key("free")}).empty(), live);
    const auto stalled = wait_for("stalled");
    store.pass_stalled_turn("stalled");
    EXPECT_EQ(has_turn(stalled), !live) << "only a free key has turns";

    // As if the waiter had got its turn, and another client had then taken the key.
    const auto give_turn = [&](const LockId& waiter) {
      SqliteClient(fresh.path() / "locks.db")("UPDATE syncguard_locks_waiters SET turn_until_ms = ?1 WHERE waiter = ?2",
                                              {std::to_string(time.time_since_epoch().count() + 10), waiter.str()});
      EXPECT_TRUE(has_turn(waiter));
    };
    const auto joined = wait_for("joined");
    give_turn(joined);
    store.join("joined", joined);
    EXPECT_EQ(has_turn(joined), !live) << "a waiter loses its turn if the key is held";
    const auto first = wait_for("left");
    const auto next = LockId::generate();
    store.join("left", next);
    give_turn(first);
    store.leave("left", first);
    EXPECT_EQ(has_turn(next), !live) << "a turn is passed on if the key is free";
  }
}

TEST_F(SqliteStore, CleanupAgreesOnRemoval) {
  for (const auto& [expires_at, now, removable] : removal_cases) {
    SCOPED_TRACE(std::to_string(expires_at) + " at " + std::to_string(now));
    const TemporaryFolder fresh;
    Timestamp time{};
    sqlite::Store store(fresh.path() / "locks.db", hooks(), [&] { return time; });
    for (const Key& key : {Key("removed"), Key("removed one by one")}) {
      time = Timestamp(std::chrono::milliseconds(expires_at) - 5s);
      (void)store.acquire({key, LockId::generate(), 5s});
    }
    time = Timestamp(std::chrono::milliseconds(now));
    const auto count = [&] { return store.clean_up({.mode = CleanupRequest::Mode::count}).count; };
    EXPECT_EQ(count(), removable ? 2U : 0U);
    store.remove_if_long_dead("removed one by one");
    EXPECT_EQ(count(), removable ? 1U : 0U);
    EXPECT_EQ(store.clean_up({}).count, removable ? 1U : 0U);
  }
}

TEST_F(SqliteStore, FencesFollowClockOnlyForwardsAndWithinReason) {
  Timestamp time(1'794'777'078'522ms);
  sqlite::Store store(path, hooks(), [&] { return time; });
  const auto next_fence = [&] {
    const auto id = LockId::generate();
    const auto fence = std::get<Granted>(store.acquire({"key", id, 5s})).fence;
    EXPECT_TRUE(std::holds_alternative<Released>(store.release(id)));
    return fence.value();
  };
  EXPECT_EQ(next_fence(), 17'947'770'785'220U);
  EXPECT_EQ(next_fence(), 17'947'770'785'221U) << "a clock that stands still";
  time += 1s;
  EXPECT_EQ(next_fence(), 17'947'770'795'220U);
  time -= 24h;
  EXPECT_EQ(next_fence(), 17'947'770'795'221U) << "a clock that was set back";
  time = Timestamp(9'000'000'000'001ms);
  EXPECT_EQ(next_fence(), 17'947'770'795'222U) << "a clock beyond Fence::warn_above";
  time = Timestamp(-1h);
  EXPECT_EQ(next_fence(), 17'947'770'795'223U) << "a clock before 1970";
}

TEST_F(SqliteStore, CleanupWaitsTwoSecondsAfterExpiry) {
  Timestamp time(1h);
  sqlite::Store store(path, hooks(), [&] { return time; });
  const auto id = LockId::generate();
  (void)store.acquire({"key", id, 5s});
  time += 5s + 2s;
  store.remove_if_long_dead("key");
  EXPECT_EQ(std::get<Missing>(store.release(id)), Missing::expired) << "the lock must still be stored";
  time += 1ms;
  store.remove_if_long_dead("key");
  EXPECT_EQ(std::get<Missing>(store.release(id)), Missing::not_found);
}

TEST_F(SqliteStore, EndlessStatementEndsAtDeadline) {
  int questions = 0;
  auto limited = hooks();
  limited.keep_running = [&] { return ++questions < 100; };
  sqlite::Connection database(sqlite::Folder(path), limited);
  auto query = database.query("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c");
  const auto error = error_of([&] { query.run(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::network_timeout);
}

TEST_F(SqliteStore, ReadsOnlyTurnsAndFirstWaiterWithoutOne) {
  sqlite::Store store(path, hooks());
  SqliteClient{path}(
      "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 20000) "
      "INSERT INTO syncguard_locks_waiters (key, waiter, turn_until_ms, seen_at_ms) "
      "SELECT 'key', 'waiter' || x, iif(x IN (1, 300), 1000 + x, NULL), 0 FROM c");
  const auto queues = store.free_queues({"key", "other"});
  ASSERT_EQ(queues.size(), 1U);
  std::vector<std::string> front;
  for (const auto& entry : queues.at("key")) front.push_back(entry.waiter);
  EXPECT_EQ(front, (std::vector<std::string>{"waiter1", "waiter2", "waiter300"}));
}

TEST_F(SqliteStore, ForeignIdNeitherFindsNorReleasesNorExtendsLock) {
  sqlite::Store store(path, hooks());
  const std::string letters(22, 'a');
  ASSERT_TRUE(std::holds_alternative<Granted>(store.acquire({"key", LockId(letters), 60s})));
  // In this table, two ids that differ only in case are equal.
  SqliteClient{path}(
      "ALTER TABLE syncguard_locks RENAME TO old; DROP INDEX idx_syncguard_locks_lock_id;"
      "CREATE TABLE syncguard_locks (key TEXT NOT NULL PRIMARY KEY, lock_id TEXT NOT NULL COLLATE NOCASE,"
      " expires_at_ms INTEGER NOT NULL, acquired_at_ms INTEGER NOT NULL, fence TEXT NOT NULL, user_key TEXT NOT NULL,"
      " renewed_at_ms INTEGER, holder TEXT, holder_lock_id TEXT) STRICT;"
      "INSERT INTO syncguard_locks SELECT * FROM old; DROP TABLE old");
  const LockId another(std::string(22, 'A'));
  EXPECT_FALSE(store.find_live(another));
  EXPECT_EQ(std::get<Missing>(store.release(another)), Missing::not_found);
  EXPECT_EQ(std::get<Missing>(store.extend(another, 60s)), Missing::not_found);
  EXPECT_TRUE(store.find_live(LockId(letters)));
  EXPECT_TRUE(std::holds_alternative<Released>(store.release(LockId(letters))));
}

// Moves all times of a lock into the future, which has the same effect as setting the clock back.
void set_clock_back(const std::filesystem::path& path, std::chrono::milliseconds by) {
  SqliteClient{path}(
      "UPDATE syncguard_locks SET expires_at_ms = expires_at_ms + ?1,"
      " acquired_at_ms = acquired_at_ms + ?1, renewed_at_ms = renewed_at_ms + ?1",
      {std::to_string(by.count())});
}

TEST_F(SqliteStore, ClockSetBackKeepsLockNoLongerThanTtl) {
  sqlite::Store store(path, hooks());
  const auto holder = LockId::generate();
  (void)store.acquire({"key", holder, 10min});
  for (const bool extended : {false, true}) {
    if (extended) {
      ASSERT_TRUE(std::holds_alternative<Extended>(store.extend(holder, 5min)));
    }
    const auto ttl = extended ? 5min : 10min;
    set_clock_back(path, 24h);
    const auto refused = store.acquire({"key", LockId::generate(), 60s});
    ASSERT_TRUE(std::holds_alternative<Contended>(refused)) << "the holder may be alive";
    EXPECT_LE(std::get<Contended>(refused).free_in, ttl + 1s);
    const auto left = store.find_live("key")->expires_at - os::system_now();
    EXPECT_LE(left, ttl);
    EXPECT_GT(left, ttl - 60s);
  }
  EXPECT_TRUE(std::holds_alternative<Extended>(store.extend(holder, 10min)));
  EXPECT_TRUE(std::holds_alternative<Released>(store.release(holder)));
}

TEST_F(SqliteStore, ExtensionByOlderVersionIsNeverShortened) {
  sqlite::Store store(path, hooks());
  (void)store.acquire({"key", LockId::generate(), 1s});
  // An older version does not update renewed_at_ms.
  SqliteClient{path}("UPDATE syncguard_locks SET expires_at_ms = expires_at_ms + 3600000");
  (void)store.acquire({"key", LockId::generate(), 1s});
  EXPECT_GT(store.find_live("key")->expires_at - os::system_now(), 30min);
}

TEST_F(SqliteStore, FileOfOlderVersionIsUpgraded) {
  {
    SqliteClient{path}(
        "PRAGMA application_id = 0x53794775; PRAGMA user_version = 1;"
        "CREATE TABLE syncguard_locks (key TEXT NOT NULL PRIMARY KEY, lock_id TEXT NOT NULL, expires_at_ms INTEGER NOT "
        "NULL, acquired_at_ms INTEGER NOT NULL, fence TEXT NOT NULL, user_key TEXT NOT NULL) STRICT;"
        "CREATE TABLE syncguard_fence_counters (fence_key TEXT NOT NULL PRIMARY KEY, fence INTEGER NOT NULL DEFAULT 0, "
        "key_debug TEXT) STRICT;"
        "CREATE TABLE syncguard_locks_waiters (position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, waiter "
        "TEXT NOT NULL, turn_until_ms INTEGER) STRICT;"
        "CREATE UNIQUE INDEX idx_syncguard_locks_waiters_waiter ON syncguard_locks_waiters (waiter)");
  }
  sqlite::Store store(path, hooks());
  const auto id = LockId::generate();
  EXPECT_TRUE(std::holds_alternative<Granted>(store.acquire({"key", id, 60s})));
  EXPECT_TRUE(std::holds_alternative<Extended>(store.extend(id, 60s)));
  store.join("key", LockId::generate());
  EXPECT_EQ(SqliteClient{path}("PRAGMA user_version"), "1");
  const AcquireRequest labeled{.key = "labeled", .lock_id = LockId::generate(), .ttl = 60s, .holder = "web-3/4711"};
  EXPECT_TRUE(std::holds_alternative<Granted>(store.acquire(labeled)));
  EXPECT_EQ(store.find_live("labeled")->holder, "web-3/4711");
}

TEST_F(SqliteStore, OlderVersionsDoNotInheritLabel) {
  sqlite::Store store(path, hooks());
  const AcquireRequest labeled{.key = "key", .lock_id = LockId::generate(), .ttl = 60s, .holder = "web-3/4711"};
  EXPECT_TRUE(std::holds_alternative<Granted>(store.acquire(labeled)));
  const auto theirs = LockId::generate();
  SqliteClient{path}("UPDATE syncguard_locks SET lock_id = ?1", {theirs.str()});
  EXPECT_EQ(store.find_live("key")->holder, "");
  EXPECT_EQ(store.find_live(theirs)->holder, "");
  EXPECT_EQ(store.list({}).locks.at(0).holder, "");
}

TEST_F(SqliteStore, ListLeavesOutRowsThatAreNoLocksAndContinuesBehindExpiredOnes) {
  sqlite::Store store(path, hooks());
  EXPECT_TRUE(std::holds_alternative<Granted>(store.acquire({"z", LockId::generate(), 60s})));
  SqliteClient{path}(
      "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 4500) INSERT INTO syncguard_locks "
      "(key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) SELECT 'expired:' || x, printf('%022d', x), 1, "
      "0, '000000000000001', 'expired:' || x FROM c");
  SqliteClient{path}(
      "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) VALUES "
      "('foreign', 'short', 99999999999999, 0, 'x', 'foreign')");
  std::vector<std::string> found;
  ListRequest request;
  int pages = 0;
  do {
    const auto page = store.list(request);
    for (const auto& lock : page.locks) found.push_back(lock.key.str());
    request.cursor = page.cursor;
    ++pages;
  } while (!request.cursor.empty());
  EXPECT_EQ(found, (std::vector<std::string>{"z"}));
  EXPECT_EQ(pages, 3);
}

TEST_F(SqliteStore, DeadWaitersOfUnusedKeysArePurged) {
  sqlite::Store store(path, hooks());
  const auto waiter = LockId::generate();
  store.join("key", waiter);
  SqliteClient{path}(
      "INSERT INTO syncguard_locks_waiters (key, waiter, seen_at_ms) VALUES ('old', 'dead', 1000);"
      "INSERT INTO syncguard_locks_waiters (key, waiter, seen_at_ms) VALUES ('old', 'later', 99999999999999);"
      "INSERT INTO syncguard_locks_waiters (key, waiter) VALUES ('old', 'of an older version')");
  const auto count = [&] { return SqliteClient{path}("SELECT count(*) FROM syncguard_locks_waiters"); };
  store.join("key", LockId::generate());
  EXPECT_EQ(count(), "3");
  SqliteClient{path}("UPDATE syncguard_locks_waiters SET seen_at_ms = seen_at_ms - 48 * 3600000");
  store.join("key", waiter);
  EXPECT_EQ(count(), "1") << "the waiter that joined again must be kept";
}

TEST_F(SqliteStore, NextReleaseWakesWaiterThatLostItsTurn) {
  sqlite::Store store(path, hooks(), [] { return Timestamp(1'700'000'000'000ms); });
  const auto first = LockId::generate();
  const auto second = LockId::generate();
  store.join("key", first);
  store.join("key", second);
  // Both waiters have a turn, as after a dead waiter, and the first acquires the lock.
  SqliteClient{path}("UPDATE syncguard_locks_waiters SET turn_until_ms = 1700000000030");
  EXPECT_TRUE(std::holds_alternative<Granted>(store.acquire({"key", first, 60s})));
  EXPECT_TRUE(std::holds_alternative<Contended>(store.acquire({"key", second, 60s})));
  store.join("key", second);
  const auto turns = [&] { return SqliteClient{path}("SELECT count(turn_until_ms) FROM syncguard_locks_waiters"); };
  EXPECT_EQ(turns(), "0");
  EXPECT_TRUE(std::holds_alternative<Released>(store.release(first)));
  EXPECT_EQ(turns(), "1");
}

TEST_F(SqliteStore, OneQueryFindsEveryQueueOfAFreeKey) {
  sqlite::Store store(path, hooks());
  const auto holder = LockId::generate();
  const std::vector<LockId> waiters = {LockId::generate(), LockId::generate(), LockId::generate()};
  (void)store.acquire({"held", holder, 60s});
  store.join("held", waiters[0]);
  EXPECT_TRUE(store.free_queues({"held", "free"}).empty());
  store.join("free", waiters[1]);
  store.join("free", waiters[2]);
  const auto now = os::system_now();
  auto queues = store.free_queues({"held", "free"});
  ASSERT_EQ(queues.size(), 1U);
  EXPECT_TRUE(sqlite::Store::queue_state(queues["free"], waiters[1], now).try_now);
  const auto behind = sqlite::Store::queue_state(queues["free"], waiters[2], now);
  EXPECT_FALSE(behind.try_now);
  EXPECT_TRUE(behind.stalled);
  EXPECT_TRUE(behind.recheck_at);

  (void)store.release(holder);
  queues = store.free_queues({"held", "free"});
  ASSERT_EQ(queues.size(), 2U);
  // A time within the turn, even if the test was delayed.
  ASSERT_TRUE(queues["held"].front().turn_until);
  const auto in_the_turn = *queues["held"].front().turn_until - 10ms;
  EXPECT_TRUE(sqlite::Store::queue_state(queues["held"], waiters[0], in_the_turn).try_now)
      << "this waiter has the turn";
  const auto without_turn = sqlite::Store::queue_state(queues["held"], waiters[1], in_the_turn);
  EXPECT_FALSE(without_turn.try_now);
  EXPECT_FALSE(without_turn.stalled) << "a waiter has the turn";
}

}  // namespace
}  // namespace syncguard::testing
