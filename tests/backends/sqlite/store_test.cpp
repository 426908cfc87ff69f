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

#include <array>
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
    EXPECT_EQ(store.inspect("seen").holders.size(), live ? 1U : 0U);
    EXPECT_EQ(store.list({.prefix = "seen"}).locks.size(), live ? 1U : 0U);
    EXPECT_EQ(store.break_lock("seen", Fence(1)), live);

    // Waiters see the same as callers that acquire.
    lock("waited for");
    const auto waiter = LockId::generate();
    EXPECT_EQ(store.join("waited for", {waiter}).free_in.has_value(), live);
    const std::array looks{backends::Waiters::Look{waiter, "waited for", 50ms, 1}};
    EXPECT_EQ(store.look(looks).at(0).free_in.has_value(), live);
    EXPECT_EQ(store.waiters_with_turn().empty(), live) << "only a free key has turns";
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

TEST_F(SqliteStore, ForeignIdNeitherFindsNorReleasesNorExtendsLock) {
  sqlite::Store store(path, hooks());
  const std::string letters(22, 'a');
  ASSERT_TRUE(std::holds_alternative<Granted>(store.acquire({"key", LockId(letters), 60s})));
  // In this table, two ids that differ only in case are equal.
  SqliteClient{path}(
      "ALTER TABLE syncguard_locks RENAME TO old; DROP INDEX idx_syncguard_locks_lock_id;"
      "CREATE TABLE syncguard_locks (key TEXT NOT NULL PRIMARY KEY, lock_id TEXT NOT NULL COLLATE NOCASE,"
      " expires_at_ms INTEGER NOT NULL, acquired_at_ms INTEGER NOT NULL, fence TEXT NOT NULL, user_key TEXT NOT NULL,"
      " renewed_at_ms INTEGER, holder TEXT) STRICT;"
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

}  // namespace
}  // namespace syncguard::testing
