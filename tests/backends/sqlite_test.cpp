// What only the embedded backend does: its file, its neighbours on the disk, and processes that die.

#include "expect_error.hpp"
#include "sqlite_fixture.hpp"
#include "storm.hpp"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iterator>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

unsigned mode(const std::filesystem::path& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777U;
}

TEST_F(Sqlite, MakesFilesAndFoldersThatOnlyTheirOwnerCanRead) {
  const auto old_mask = umask(0);
  auto locks = client();
  const auto lease = locks.acquire("key");
  umask(old_mask);
  EXPECT_EQ(mode(path.parent_path()), 0700U);
  for (const char* suffix : {"", "-wal", "-shm", "-wake"}) EXPECT_EQ(mode(path.string() + suffix), 0600U) << suffix;
}

TEST_F(Sqlite, StoresWhatItsNeighboursInPostgresStore) {
  auto locks = client();
  const auto lease = locks.acquire("payment:42");
  SqliteOutsider outsider(path);
  EXPECT_EQ(outsider("SELECT key, lock_id, fence, user_key, expires_at_ms - acquired_at_ms FROM syncguard_locks"),
            "payment:42 " + lease.id().str() + " 000000000000001 payment:42 30000");
  EXPECT_EQ(outsider("SELECT fence_key, fence, key_debug FROM syncguard_fence_counters"),
            "fence:payment:42 1 payment:42");
  EXPECT_EQ(outsider("PRAGMA journal_mode"), "wal");
}

TEST_F(Sqlite, RefusesTheDatabaseOfAnotherProgramAndLeavesItAlone) {
  std::filesystem::create_directories(path.parent_path());
  { SqliteOutsider{path}("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)"); }
  const auto before = content(path);
  auto locks = client();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("another program"));
  EXPECT_EQ(content(path), before);
}

TEST_F(Sqlite, RefusesAFileThatIsNoDatabaseAndLeavesItAlone) {
  std::filesystem::create_directories(path.parent_path());
  const std::string letter =
      "Dear Sir or Madam, this is not a database, and longer than its header would be. " + std::string(200, '.');
  std::ofstream(path) << letter;
  auto locks = client();
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.try_acquire("key"); });
  EXPECT_EQ(content(path), letter);
}

TEST_F(Sqlite, SaysThatAFileIsCorrupt) {
  { (void)client().acquire("key"); }
  { SqliteOutsider{path}("PRAGMA wal_checkpoint(TRUNCATE)"); }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto size = std::filesystem::file_size(path);
    file.seekp(4096);
    file << std::string(size - 4096, '\xff');
  }
  auto locks = client();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::internal);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("restore"));
}

TEST_F(Sqlite, RefusesAFileOfANewerVersion) {
  { (void)client().acquire("key"); }
  { SqliteOutsider{path}("PRAGMA user_version = 99"); }
  auto locks = client();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("newer version"));
}

TEST_F(Sqlite, SaysThatAFolderCannotBeWritten) {
  std::filesystem::create_directories(path.parent_path());
  chmod(folder.path().c_str(), 0755);
  chmod(path.parent_path().c_str(), 0555);
  // Nothing is forbidden to root, so a child that is nobody has to try.
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    auto locks = client();
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    _exit(error && error->code() == ErrorCode::auth_failed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Locks in a place that has no room left for a while. Says what went wrong, if anything.
std::string use_full_place(const std::filesystem::path& path, ErrorCode expected, const std::function<void()>& fill,
                           const std::function<void()>& make_room) {
  auto locks = Locks(make_sqlite_backend({.path = path}), patient_options());
  auto held = locks.acquire("held", {.ttl = 60s});
  fill();
  const auto error = error_of([&] { (void)locks.acquire("key", {.wait = {.timeout = 100ms}}); });
  const auto refused = error_of([&] { (void)locks.try_acquire("key"); });
  if (!error || !refused) return "there was room";
  if (refused->code() != expected) return refused->what();
  if (!locks.owns(held.id())) return "what was held is gone";
  make_room();
  if (!held.extend(60s)) return "what was held cannot be extended";
  const auto next = locks.try_acquire("key");
  if (!next) return "the key is still locked by the attempt that failed";
  if (next->fence() != Fence(1)) return "a fence was lost: " + next->fence().str();
  locks.close();
  return SqliteOutsider(path)("PRAGMA integrity_check") == "ok" ? "" : "the database was harmed";
}

// In a process of its own, with no threads yet; its last words go to stderr and fail the test.
template <typename Function>
void expect_in_child(const Function& function) {
  const pid_t child = fork();
  if (child == 0) {
    std::string words;
    try {
      words = function();
    } catch (const std::exception& error) {
      words = error.what();
    }
    if (!words.empty()) std::fprintf(stderr, "%s\n", words.c_str());
    _exit(words.empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "see above";
}

TEST_F(Sqlite, AFileThatMayNotGrowIsAnErrorAndHarmsNothing) {
  expect_in_child([&]() -> std::string {
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const auto allow = [&](rlim_t size) {
      const rlimit limit{.rlim_cur = size, .rlim_max = before.rlim_max};
      setrlimit(RLIMIT_FSIZE, &limit);
    };
    return use_full_place(
        path, ErrorCode::service_unavailable, [&] { allow(std::filesystem::file_size(path.string() + "-wal")); },
        [&] { allow(before.rlim_cur); });
  });
}

TEST_F(Sqlite, AFullDiskIsAnErrorThatSaysSoAndHarmsNothing) {
  expect_in_child([&]() -> std::string {
    // A disk of its own, that nobody else sees.
    const bool is_root = geteuid() == 0;
    if (unshare(CLONE_NEWNS | (is_root ? 0 : CLONE_NEWUSER)) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
      std::fprintf(stderr, "NOTE: this system lets nobody mount a small disk; only AFileThatMayNotGrow is tested\n");
      return "";
    }
    const auto filler = folder.path() / "filler";
    const auto fill = [&] {
      std::ofstream file(filler, std::ios::binary);
      while (file.put('x').flush()) {
      }
    };
    return use_full_place(path, ErrorCode::rate_limited, fill, [&] { std::filesystem::remove(filler); });
  });
}

TEST_F(Sqlite, ClosingGivesTheFileBack) {
  const auto open_files = [&] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      count += std::filesystem::read_symlink(entry, error).string().starts_with(path.string()) ? 1 : 0;
    }
    return count;
  };
  auto locks = client();
  auto waiting = client();
  {
    const auto lease = locks.acquire("key");
    EXPECT_TRUE(error_of([&] { (void)waiting.acquire("key", {.wait = {.timeout = 50ms}}); }));
    EXPECT_GT(open_files(), 0);
  }
  locks.close();
  waiting.close();
  // The doorbells go with their owners.
  EXPECT_LE(open_files(), 1);
}

TEST_F(Sqlite, AFolderThatIsAFileIsUnavailable) {
  std::ofstream(path.parent_path()) << "in the way";
  auto locks = client();
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.try_acquire("key"); });
}

TEST_F(Sqlite, RecoversWhenWhatWasInTheWayIsGone) {
  std::ofstream(path.parent_path()) << "in the way";
  auto locks = client();
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.try_acquire("key"); });
  std::filesystem::remove(path.parent_path());
  EXPECT_TRUE(locks.try_acquire("key"));
}

TEST_F(Sqlite, WaitsForABusyDatabaseUntilItsTimeOutAndNotLonger) {
  auto unhurried = client({.operation_timeout = 60s});
  { (void)unhurried.acquire("key"); }
  auto locks = client({.operation_timeout = 200ms});
  SqliteOutsider writer(path);
  writer("BEGIN IMMEDIATE");
  const auto start = steady_clock::now();
  expect_error(ErrorCode::network_timeout, [&] { (void)locks.try_acquire("key"); });
  EXPECT_GE(steady_clock::now() - start, 190ms);
  EXPECT_LT(steady_clock::now() - start, 15s);

  std::stop_source stop;
  steady_clock::time_point stopped_at;
  std::thread stopper([&] {
    std::this_thread::sleep_for(30ms);
    stopped_at = steady_clock::now();
    stop.request_stop();
  });
  expect_error(ErrorCode::aborted, [&] { (void)unhurried.try_acquire("key", {}, stop.get_token()); });
  const auto ended_at = steady_clock::now();
  stopper.join();
  EXPECT_LT(ended_at - stopped_at, 15s) << "long before its time-out";

  EXPECT_FALSE(unhurried.is_locked("key")) << "readers do not wait for writers";
  writer("COMMIT");
  EXPECT_TRUE(unhurried.try_acquire("key"));
}

TEST_F(Sqlite, AChildThatWasForkedWithTheFileOpenIsRefused) {
  auto locks = client();
  (void)locks.is_locked("key");
  const pid_t child = fork();
  if (child == 0) {
    Locks second = client();
    const auto error = error_of([&] { (void)second.is_locked("key"); });
    _exit(error && error->code() == ErrorCode::invalid_argument ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Sqlite, WaitersAreWokenByTheNewFileToo) {
  auto holder = client();
  auto waiter = client();
  for (const bool remove_files : {false, true}) {
    if (remove_files) std::filesystem::remove_all(path.parent_path());
    auto lease = holder.acquire("key", {.ttl = 10min});
    auto waiting = std::async(std::launch::async, [&] { (void)waiter.acquire("key", patient); });
    ASSERT_TRUE(
        eventually([&] { return SqliteOutsider{path}("SELECT count(*) FROM syncguard_locks_waiters") == "1"; }));
    EXPECT_TRUE(lease.release());
    EXPECT_EQ(waiting.wait_for(soon), std::future_status::ready) << (remove_files ? "new" : "old");
    waiting.get();
  }
}

TEST_F(Sqlite, GoesOnInTheNewFileWhenTheOldOneWasRemoved) {
  auto locks = client();
  auto other = client();
  { EXPECT_TRUE(locks.try_acquire("key")); }
  { EXPECT_TRUE(other.try_acquire("key")); }
  for (const char* suffix : {"", "-wal", "-shm", "-wake"}) std::filesystem::remove(path.string() + suffix);
  const auto lease = locks.try_acquire("key");
  EXPECT_TRUE(lease);
  EXPECT_FALSE(other.try_acquire("key")) << "both use the new one";
}

TEST_F(Sqlite, ManyProcessesMayMakeTheFileAtTheSameMoment) {
  for (int round = 0; round < 5; ++round) {
    path = folder.path() / ("round" + std::to_string(round)) / "locks.db";
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
      children.push_back(fork());
      if (children.back() != 0) continue;
      auto locks = client();
      const auto error = error_of([&] { (void)locks.is_locked("key"); });
      if (error) std::fprintf(stderr, "%s\n", error->what());
      _exit(error ? 1 : 0);
    }
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(WEXITSTATUS(status), 0);
    }
  }
}

TEST_F(Sqlite, WaitersThatDiedAreSkippedOneAfterTheOther) {
  auto locks = client();
  auto lease = locks.acquire("key");
  {
    // What killed processes leave behind.
    SqliteOutsider outsider(path);
    for (int i = 0; i < 4; ++i) {
      outsider("INSERT INTO syncguard_locks_waiters (key, waiter) VALUES ('key', 'dead" + std::to_string(i) + "')");
    }
  }
  auto other = client();
  std::thread waiting(
      [&] { EXPECT_TRUE(other.acquire("key", {.wait = {.timeout = 60s, .retry_delay = 60s, .max_delay = 60s}})); });
  EXPECT_TRUE(eventually([&] { return SqliteOutsider{path}("SELECT count(*) FROM syncguard_locks_waiters") == "5"; }));
  const auto start = steady_clock::now();
  EXPECT_TRUE(lease.release());
  waiting.join();
  EXPECT_LT(steady_clock::now() - start, 15s) << "far below the delay of a minute";
}

TEST_F(Sqlite, AClockThatWasSetBackDoesNotReserveAKeyForLong) {
  auto locks = client();
  (void)locks.is_locked("key");
  {
    SqliteOutsider{path}(
        "INSERT INTO syncguard_locks_waiters (key, waiter, turn_until_ms) VALUES ('key', 'x', 99999999999999)");
  }
  EXPECT_TRUE(locks.try_acquire("key"));
}

TEST_F(Sqlite, TakesPathsThatMeanSomethingElseToSqliteForPaths) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  auto one = open_patiently("sqlite::memory:");
  auto other = open_patiently("sqlite::memory:");
  const auto lease = one.try_acquire("key");
  EXPECT_FALSE(other.try_acquire("key"));
  std::filesystem::current_path(before);
}

TEST_F(Sqlite, FindsItsDefaultPlaceInTheEnvironment) {
  setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(default_sqlite_path(), "/state/syncguard/locks.db");
  setenv("XDG_STATE_HOME", "relative", 1);
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(default_sqlite_path(), "/home/me/.local/state/syncguard/locks.db");
}

TEST_F(Sqlite, ProcessesKilledAtAnyInstantBlockNobodyAndLoseNoCounter) {
  { (void)client().is_locked("storm"); }
  const SharedEvidence evidence;
  survive_kills([this] { return client(); }, *evidence);
  SqliteOutsider outsider(path);
  EXPECT_EQ(outsider("PRAGMA integrity_check"), "ok");
  EXPECT_GE(std::stoull(outsider("SELECT fence FROM syncguard_fence_counters")), evidence->newest_fence.load());
}

}  // namespace
}  // namespace syncguard::testing
