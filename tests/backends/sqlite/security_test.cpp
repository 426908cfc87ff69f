// The SQLite backend against other users of the host: files, folders, links and database contents that they prepared.

#include "backends/sqlite/wake_files.hpp"
#include "fixture.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/in_child.hpp"
#include "support/needs_root.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;

struct SqliteSecurity : Sqlite {
  [[nodiscard]] std::vector<std::filesystem::path> wake_files() const {
    std::vector<std::filesystem::path> paths;
    for (unsigned number = 0; number < sqlite::WakeFiles::count; ++number) {
      paths.push_back(sqlite::WakeFiles::path(path, number));
    }
    return paths;
  }
};

constexpr uid_t another_user = 65534;

TEST_F(SqliteSecurity, RootRejectsFolderOfAnotherUser) {
  SYNCGUARD_NEEDS_ROOT();
  const auto theirs = folder.path() / "theirs";
  std::filesystem::create_directories(theirs);
  ASSERT_EQ(chown(theirs.c_str(), another_user, another_user), 0);
  for (const auto& place : {theirs / "locks.db", theirs / "below" / "locks.db"}) {
    path = place;
    auto locks = client();
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::auth_failed);
    EXPECT_THAT(error->what(), ::testing::HasSubstr("another user"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(theirs)) << "root must create nothing in the folder of another user";
}

TEST_F(SqliteSecurity, RootRejectsOwnFolderBelowOneOfAnotherUser) {
  SYNCGUARD_NEEDS_ROOT();
  { (void)client().try_acquire("key"); }
  ASSERT_EQ(chown(folder.path().c_str(), another_user, another_user), 0);
  auto locks = client();
  expect_error(ErrorCode::auth_failed, [&] { (void)locks.try_acquire("key"); });
}

TEST_F(SqliteSecurity, RootRejectsWorldWritableFolder) {
  SYNCGUARD_NEEDS_ROOT();
  { (void)client().try_acquire("key"); }
  chmod(path.parent_path().c_str(), 0777);
  auto locks = client();
  expect_error(ErrorCode::auth_failed, [&] { (void)locks.try_acquire("key"); });
}

TEST_F(SqliteSecurity, FilesOfAnotherUserInSharedFolderAreRejected) {
  SYNCGUARD_NEEDS_ROOT();
  std::filesystem::create_directories(path.parent_path());
  chmod(folder.path().c_str(), 0755);
  chmod(path.parent_path().c_str(), 01777);
  for (const uid_t user : {0U, 1000U}) {
    for (const char* const suffix : {"", "-wal", "-shm"}) {
      const auto theirs = path.string() + suffix;
      std::ofstream(theirs).flush();
      ASSERT_EQ(chown(theirs.c_str(), another_user, another_user), 0);
      expect_in_child([&]() -> std::string {
        if (setuid(user) != 0) return "cannot become another user";
        const auto error = error_of([&] { (void)client().try_acquire("key"); });
        return error && error->code() == ErrorCode::auth_failed ? "" : "the file was used";
      });
      std::filesystem::remove(theirs);
    }
    expect_in_child([&]() -> std::string {
      if (setuid(user) != 0) return "cannot become another user";
      const auto lease = client().try_acquire("key");
      return lease ? "" : "the lock is not free";
    });
    std::filesystem::remove(path);
  }
}

// Its contents would become those of the database, which that user may not write.
TEST_F(SqliteSecurity, LogOfUserThatMayNotWriteTheDatabaseIsRejected) {
  SYNCGUARD_NEEDS_ROOT();
  { (void)client().try_acquire("key"); }
  const auto theirs = path.string() + "-wal";
  std::ofstream(theirs).flush();
  ASSERT_EQ(chown(theirs.c_str(), another_user, another_user), 0);
  auto locks = client();
  expect_error(ErrorCode::auth_failed, [&] { (void)locks.try_acquire("key"); });
  std::filesystem::remove(theirs);
  EXPECT_TRUE(locks.try_acquire("key"));
}

TEST_F(SqliteSecurity, RootRejectsDatabaseOfAnotherUserWhereItsGroupCanCreateFiles) {
  SYNCGUARD_NEEDS_ROOT();
  { (void)client().try_acquire("key"); }
  chmod(path.parent_path().c_str(), 0770);
  EXPECT_TRUE(client().try_acquire("key"));
  ASSERT_EQ(chown(path.c_str(), another_user, another_user), 0);
  auto locks = client();
  expect_error(ErrorCode::auth_failed, [&] { (void)locks.try_acquire("key"); });
}

TEST_F(SqliteSecurity, RootGivesWakeUpFileToOwnerOfDatabaseInFolderOfRoot) {
  SYNCGUARD_NEEDS_ROOT();
  { (void)client().try_acquire("key"); }
  ASSERT_EQ(chown(path.c_str(), another_user, another_user), 0);
  const auto file = sqlite::WakeFiles(sqlite::Folder(path)).prepare(0);
  ASSERT_TRUE(file);
  struct stat status {};
  ASSERT_EQ(stat(file->c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, another_user);
}

// The attacker makes the path change between a folder with a database of the attacker and a folder of root. If root
// looked at one and wrote to the other, it would give a file in its own folder to the attacker.
TEST_F(SqliteSecurity, RootGivesNothingAwayWhileAFolderIsSwapped) {
  SYNCGUARD_NEEDS_ROOT();
  const auto precious = folder.path() / "precious";
  const auto theirs = folder.path() / "theirs";
  const auto swapped = folder.path() / "swapped";
  std::filesystem::create_directories(precious);
  std::filesystem::create_directories(theirs);
  std::ofstream(theirs / "locks.db").flush();
  for (const auto& place : {theirs, theirs / "locks.db"}) {
    ASSERT_EQ(chown(place.c_str(), another_user, another_user), 0);
  }
  std::filesystem::create_symlink(precious, swapped);
  std::atomic<bool> done = false;
  std::thread attacker([&] {
    while (!done) {
      EXPECT_EQ(renameat2(AT_FDCWD, theirs.c_str(), AT_FDCWD, swapped.c_str(), RENAME_EXCHANGE), 0);
    }
  });
  int refused = 0;
  int prepared = 0;
  while (refused < 200 || prepared < 200) {
    try {
      const sqlite::WakeFiles files(sqlite::Folder(swapped / "locks.db"));
      for (unsigned number = 0; number < sqlite::WakeFiles::count; ++number) (void)files.prepare(number);
      ++prepared;
    } catch (const LockError&) {
      ++refused;
    }
  }
  done = true;
  attacker.join();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    struct stat status {};
    ASSERT_EQ(lstat(entry.path().c_str(), &status), 0);
    const bool was_theirs = entry.path().filename() == "locks.db" || std::filesystem::exists(entry.path() / "locks.db");
    EXPECT_EQ(status.st_uid == another_user, was_theirs) << entry.path();
  }
}

// One client waits for the lock of another and gets it. Runs in a child process, which an alarm ends if it hangs.
void expect_hand_over(const std::filesystem::path& path) {
  expect_in_child([&]() -> std::string {
    alarm(60);
    auto holder =
        Locks(make_sqlite_backend({.path = path}, Log([](LogLevel, std::string_view) {})), with_long_timeout());
    auto waiter =
        Locks(make_sqlite_backend({.path = path}, Log([](LogLevel, std::string_view) {})), with_long_timeout());
    auto lease = holder.acquire("key", {.ttl = 10min});
    auto waiting = std::async(std::launch::async, [&] { return waiter.acquire("key", patient).fence(); });
    if (!eventually([&] { return SqliteClient{path}("SELECT count(*) FROM syncguard_locks_waiters") == "1"; })) {
      return "the waiter did not join the queue";
    }
    if (!lease.release()) return "cannot release the lock";
    if (waiting.wait_for(soon) != std::future_status::ready) return "the waiter was not woken";
    return waiting.get() > lease.fence() ? "" : "the waiter got an unexpected fence";
  });
}

TEST_F(SqliteSecurity, PipeAtWakeUpFileBlocksNothing) {
  std::filesystem::create_directories(path.parent_path());
  for (const auto& file : wake_files()) ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  expect_hand_over(path);
  EXPECT_THAT(verdict_on(client().admin().diagnose(), "wake-up file"), ::testing::StartsWith("warning"));
}

TEST_F(SqliteSecurity, LinkAtWakeUpFileIsNotWrittenTo) {
  std::filesystem::create_directories(path.parent_path());
  const auto precious = folder.path() / "precious";
  std::ofstream(precious) << "precious";
  for (const auto& file : wake_files()) std::filesystem::create_hard_link(precious, file);
  expect_hand_over(path);
  for (const auto& file : wake_files()) {
    std::filesystem::remove(file);
    std::filesystem::create_symlink(precious, file);
  }
  std::filesystem::remove(path);
  expect_hand_over(path);
  std::ifstream file(precious);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "precious");
}

// A rollback journal as SQLite would play it back: it has the given pages, and says to delete a file.
void write_journal(const std::filesystem::path& path, const std::string& pages, const std::string& to_delete) {
  constexpr std::size_t page_size = 4096;
  const std::string magic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  const auto number = [](std::size_t value) {
    std::string bytes;
    for (unsigned shift = 32; shift > 0; shift -= 8) bytes += static_cast<char>(value >> (shift - 8) & 0xffU);
    return bytes;
  };
  const auto sum = [](const std::string& bytes) {
    std::size_t total = 0;
    for (const char c : bytes) total += static_cast<unsigned char>(c);
    return total;
  };
  const auto count = pages.size() / page_size;
  std::string journal = magic + number(count) + number(0) + number(count) + number(512) + number(page_size);
  journal.resize(512);
  for (std::size_t page = 0; page < count; ++page) {
    const auto content = pages.substr(page * page_size, page_size);
    std::string checked;
    for (std::size_t i = page_size - 200; i > 0 && i < page_size; i -= 200) checked += content[i];
    journal += number(page + 1) + content + number(sum(checked));
  }
  journal += number(0x40000000 / page_size + 1) + to_delete + number(to_delete.size()) + number(sum(to_delete)) + magic;
  std::ofstream(path, std::ios::binary) << journal;
}

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(SqliteSecurity, ForgedJournalNeitherChangesTheDatabaseNorDeletesAFile) {
  const auto precious = folder.path() / "precious";
  std::ofstream(precious) << "precious";
  { (void)client().is_locked("key"); }
  const auto before = contents_of(path);
  const Fence raised(900'000'000'000'000 - 1);
  { (void)client().admin().raise_fence("key", raised); }
  const auto journal = path.string() + "-journal";
  write_journal(journal, before, precious.string());
  EXPECT_EQ(client().admin().inspect("key").fence, raised);
  EXPECT_TRUE(std::filesystem::exists(precious));
  EXPECT_TRUE(std::filesystem::exists(journal)) << "a file of another user is left alone";
}

TEST_F(SqliteSecurity, PipeAtJournalBlocksNothing) {
  { (void)client().is_locked("key"); }
  ASSERT_EQ(mkfifo((path.string() + "-journal").c_str(), 0600), 0);
  expect_in_child([&]() -> std::string {
    alarm(60);
    const auto lease = client().try_acquire("key");
    return lease ? "" : "the lock is not free";
  });
}

TEST_F(SqliteSecurity, NonRegularFileIsRejected) {
  std::filesystem::create_directories(path.parent_path());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_in_child([&]() -> std::string {
    alarm(60);
    auto locks = client();
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    return error && error->code() == ErrorCode::invalid_argument ? "" : "a pipe was accepted as a database";
  });
}

TEST_F(SqliteSecurity, DanglingLinkIsRejectedAndNothingIsCreated) {
  std::filesystem::create_directories(path.parent_path());
  const auto target = folder.path() / "target.db";
  std::filesystem::create_symlink(target, path);
  auto locks = client();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("points to nothing"));
  EXPECT_FALSE(std::filesystem::exists(target));

  std::filesystem::create_symlink(folder.path() / "nowhere", folder.path() / "linked");
  path = folder.path() / "linked" / "locks.db";
  auto below = client();
  expect_error(ErrorCode::invalid_argument, [&] { (void)below.try_acquire("key"); });
}

TEST_F(SqliteSecurity, LinksToDatabaseAndFolderAreFollowed) {
  const auto real = path;
  auto holder = client();
  const auto lease = holder.acquire("key", {.ttl = 10min});
  std::filesystem::create_symlink(real, folder.path() / "linked.db");
  std::filesystem::create_symlink(real.parent_path(), folder.path() / "linked");
  for (const auto& link : {folder.path() / "linked.db", folder.path() / "linked" / "locks.db"}) {
    path = link;
    EXPECT_TRUE(client().is_locked("key")) << link;
  }
}

TEST_F(SqliteSecurity, FileOfAnotherUserIsAuthFailed) {
  SYNCGUARD_NEEDS_ROOT();
  { (void)client().acquire("key"); }
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(path.parent_path(), std::filesystem::perms(0755));
  expect_in_child([&]() -> std::string {
    if (setuid(another_user) != 0) return "cannot become another user";
    auto locks = client();
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    if (!error) return "the file of another user was used";
    return error->code() == ErrorCode::auth_failed ? "" : error->what();
  });
}

// SQLite counts each function call in the constraint as one step, however long it takes. Every INSERT evaluates the
// constraint.
TEST_F(SqliteSecurity, ConstraintThatTakesLongEndsAtTheDeadline) {
  { (void)client().try_acquire("other key"); }
  std::string costly = "CHECK (true";
  for (int i = 0; i < 400; ++i) costly += " AND instr(hex(zeroblob(49000)), hex(zeroblob(24000)) || '1') = 0";
  {
    SqliteClient outsider(path);
    outsider("DROP TABLE syncguard_locks");
    outsider(
        "CREATE TABLE syncguard_locks (key PRIMARY KEY, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, "
        "renewed_at_ms, holder, " +
        costly + "))");
  }
  const auto start = std::chrono::steady_clock::now();
  auto locks = open("sqlite:" + path.string() + "?operation_timeout=500ms");
  EXPECT_TRUE(error_of([&] { (void)locks.try_acquire("key"); }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, soon);
}

constexpr const char* endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c";

TEST_F(SqliteSecurity, ViewsInsteadOfTablesAreRejected) {
  std::filesystem::create_directories(path.parent_path());
  {
    SqliteClient outsider(path);
    outsider("PRAGMA application_id = 0x53794775; PRAGMA user_version = 1");
    outsider(std::string("CREATE VIEW SyncGuard_Locks AS ") + endless);
  }
  auto locks = client();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("views"));
}

TEST_F(SqliteSecurity, TriggersAreRejectedAndNeverRun) {
  auto locks = client();
  { (void)locks.acquire("key"); }
  SqliteClient{path}(
      "CREATE TABLE loot (lock_id);"
      "CREATE TRIGGER thief AFTER INSERT ON syncguard_locks BEGIN INSERT INTO loot VALUES (new.lock_id); END");
  EXPECT_TRUE(locks.try_acquire("key")) << "this client opened the database before the trigger existed";
  EXPECT_EQ(SqliteClient{path}("SELECT count(*) FROM loot"), "0");
  auto later = client();
  expect_error(ErrorCode::invalid_argument, [&] { (void)later.try_acquire("key"); });
}

TEST_F(SqliteSecurity, ViewThatReplacesTableLaterNeverRuns) {
  auto locks = client({.operation_timeout = 60s});
  { (void)locks.acquire("key"); }
  SqliteClient{path}(std::string("DROP TABLE syncguard_locks; CREATE VIEW syncguard_locks AS ") + endless);
  EXPECT_TRUE(error_of([&] { (void)locks.try_acquire("key"); }));
}

}  // namespace
}  // namespace syncguard::testing
