// Behavior of the SQLite backend only: its files, full disks, other programs that use the file, killed processes.

#include "fixture.hpp"
#include "support/expect_error.hpp"
#include "support/fork_when_idle.hpp"
#include "support/in_child.hpp"
#include "support/is_granted.hpp"
#include "support/needs_root.hpp"
#include "support/no_threads.hpp"
#include "support/sandbox.hpp"
#include "support/storm.hpp"

#include <syncguard/async.hpp>

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <asio/io_context.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
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

TEST_F(Sqlite, OpenWithoutThreadsIsLockError) {
  const NoThreads no_threads;
  expect_error(ErrorCode::internal, [] { (void)open("sqlite:/nowhere/locks.db"); });
  expect_error(ErrorCode::internal, [] { (void)make_sqlite_backend({.path = "/nowhere/locks.db"}); });
}

TEST_F(Sqlite, CreatesFilesAndFoldersReadableOnlyByOwner) {
  const auto old_mask = umask(0);
  auto locks = client();
  const auto lease = locks.acquire("key");
  EXPECT_TRUE(error_of([&] { (void)client().acquire("key", {.wait = {.timeout = 50ms}}); }));
  umask(old_mask);
  EXPECT_EQ(mode(path.parent_path()), 0700U);
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(path.parent_path())) {
    EXPECT_EQ(mode(file.path()), 0600U) << file.path();
    ++files;
  }
  EXPECT_EQ(files, 4) << "the database, -wal, -shm and one wake-up file";
}

TEST_F(Sqlite, StoresSameColumnsAsPostgres) {
  auto locks = client();
  const auto lease = locks.acquire("payment:42");
  SqliteClient outsider(path);
  EXPECT_EQ(outsider("SELECT key, lock_id, fence, user_key, expires_at_ms - acquired_at_ms FROM syncguard_locks"),
            "payment:42 " + lease.id().str() + " " + lease.fence().str() + " payment:42 30000");
  EXPECT_EQ(outsider("SELECT fence_key, fence, key_debug FROM syncguard_fence_counters"),
            "fence:payment:42 " + std::to_string(lease.fence().value()) + " payment:42");
  EXPECT_EQ(outsider("PRAGMA journal_mode"), "wal");
}

TEST_F(Sqlite, RejectsForeignDatabaseWithoutChangingIt) {
  std::filesystem::create_directories(path.parent_path());
  { SqliteClient{path}("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)"); }
  const auto before = content(path);
  auto locks = client();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("another program"));
  EXPECT_EQ(content(path), before);
}

TEST_F(Sqlite, RejectsNonDatabaseFileWithoutChangingIt) {
  std::filesystem::create_directories(path.parent_path());
  const std::string letter =
      "Dear Sir or Madam, this is not a database, and longer than its header would be. " + std::string(200, '.');
  std::ofstream(path) << letter;
  auto locks = client();
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.try_acquire("key"); });
  EXPECT_EQ(content(path), letter);
}

TEST_F(Sqlite, ReportsCorruptFile) {
  { (void)client().acquire("key"); }
  { SqliteClient{path}("PRAGMA wal_checkpoint(TRUNCATE)"); }
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

TEST_F(Sqlite, RejectsFileOfNewerVersion) {
  { (void)client().acquire("key"); }
  { SqliteClient{path}("PRAGMA user_version = 99"); }
  auto locks = client();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("newer version"));
}

TEST_F(Sqlite, ReportsUnwritableFolder) {
  std::filesystem::create_directories(path.parent_path());
  chmod(folder.path().c_str(), 0755);
  chmod(path.parent_path().c_str(), 0555);
  // Root may write everywhere, so a child process without root's rights makes the attempt.
  const pid_t child = fork_when_idle();
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

// Uses locks while the disk is full, and after it has space again. Returns an error message, or an empty string.
std::string fill_and_use(const std::filesystem::path& path, ErrorCode expected, const std::function<void()>& fill,
                         const std::function<void()>& make_room) {
  auto locks = Locks(make_sqlite_backend({.path = path}), with_long_timeout());
  auto held = locks.acquire("held", {.ttl = 60s});
  fill();
  const auto error = error_of([&] { (void)locks.acquire("key", {.wait = {.timeout = 100ms}}); });
  const auto refused = error_of([&] { (void)locks.try_acquire("key"); });
  if (!error || !refused) return "an acquire succeeded on the full disk";
  if (refused->code() != expected) return refused->what();
  if (!locks.admin().owns(held.id())) return "the held lock is lost";
  make_room();
  if (!held.extend(60s)) return "the held lock cannot be extended";
  if (SqliteClient(path)("SELECT count(*) FROM syncguard_fence_counters WHERE fence_key = 'fence:key'") != "0") {
    return "a failed attempt used a fence";
  }
  const auto next = locks.try_acquire("key");
  if (!next) return "the key is still locked by the attempt that failed";
  locks.close();
  return SqliteClient(path)("PRAGMA integrity_check") == "ok" ? "" : "the database is damaged";
}

TEST_F(Sqlite, FileSizeLimitIsAnErrorAndDamagesNothing) {
  expect_in_child([&]() -> std::string {
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const auto allow = [&](rlim_t size) {
      const rlimit limit{.rlim_cur = size, .rlim_max = before.rlim_max};
      setrlimit(RLIMIT_FSIZE, &limit);
    };
    return fill_and_use(
        path, ErrorCode::service_unavailable, [&] { allow(std::filesystem::file_size(path.string() + "-wal")); },
        [&] { allow(before.rlim_cur); });
  });
}

TEST_F(Sqlite, FullDiskIsReportedAndDamagesNothing) {
  SYNCGUARD_NEEDS_ROOT();
  expect_in_child([&]() -> std::string {
    // A small file system that only this process sees.
    if (!leave_mount_namespace() || mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
      return "cannot mount a tmpfs";
    }
    const auto filler = folder.path() / "filler";
    const auto fill = [&] {
      std::ofstream file(filler, std::ios::binary);
      while (file.put('x').flush()) {
      }
    };
    auto message = fill_and_use(path, ErrorCode::rate_limited, fill, [&] { std::filesystem::remove(filler); });
    umount2(folder.path().c_str(), MNT_DETACH);
    return message;
  });
}

TEST_F(Sqlite, CloseClosesFile) {
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
  EXPECT_EQ(open_files(), 0);
}

TEST_F(Sqlite, FileInPlaceOfFolderIsUnavailable) {
  std::ofstream(path.parent_path()) << "in the way";
  auto locks = client();
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.try_acquire("key"); });
}

TEST_F(Sqlite, RecoversWhenObstacleIsRemoved) {
  std::ofstream(path.parent_path()) << "in the way";
  auto locks = client();
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.try_acquire("key"); });
  std::filesystem::remove(path.parent_path());
  EXPECT_TRUE(locks.try_acquire("key"));
}

TEST_F(Sqlite, WaitsForBusyDatabaseUntilTimeout) {
  auto long_timeout = client({.operation_timeout = 60s});
  { (void)long_timeout.acquire("key"); }
  auto locks = client({.operation_timeout = 200ms});
  SqliteClient writer(path);
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
  expect_error(ErrorCode::aborted, [&] { (void)long_timeout.try_acquire("key", {}, stop.get_token()); });
  const auto ended_at = steady_clock::now();
  stopper.join();
  EXPECT_LT(ended_at - stopped_at, 15s) << "the stop must end the call; its timeout is 60 s";

  EXPECT_FALSE(long_timeout.is_locked("key")) << "readers must not wait for writers";
  writer("COMMIT");
  EXPECT_TRUE(long_timeout.try_acquire("key"));
}

TEST_F(Sqlite, ReleaseInBackgroundIsWorkOfTheContext) {
  asio::io_context context;
  const auto locks =
      open_on(context.get_executor(), make_sqlite_backend({.path = path}), with_long_timeout(ClientOptions()));
  std::optional<Lease> lease;
  locks.async_acquire("key", {}, [&](const std::exception_ptr&, Lease acquired) { lease = std::move(acquired); });
  while (!lease) ASSERT_GT(context.run_one_for(60s), 0U);
  SqliteClient writer(path);
  writer("BEGIN IMMEDIATE");
  lease.reset();
  context.run_for(500ms);
  EXPECT_FALSE(context.stopped()) << "the release still waits for the other program";
  writer("COMMIT");
  context.run();
  EXPECT_FALSE(client().is_locked("key"));
}

TEST_F(Sqlite, ForkedChildWithOpenFileIsRejected) {
  auto locks = client();
  (void)locks.is_locked("key");
  const pid_t child = fork_when_idle();
  if (child == 0) {
    Locks second = client();
    const auto error = error_of([&] { (void)second.is_locked("key"); });
    _exit(error && error->code() == ErrorCode::invalid_argument ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Sqlite, ContinuesInNewFileAfterOldOneWasRemoved) {
  auto locks = client();
  auto other = client();
  { EXPECT_TRUE(locks.try_acquire("key")); }
  { EXPECT_TRUE(other.try_acquire("key")); }
  for (const auto& file : std::filesystem::directory_iterator(path.parent_path())) std::filesystem::remove(file);
  const auto lease = locks.try_acquire("key");
  EXPECT_TRUE(lease);
  EXPECT_FALSE(is_granted(other.try_acquire("key"))) << "both clients must use the new file";
}

TEST_F(Sqlite, LeasesAreLostSoonAfterDatabaseIsDeleted) {
  auto holder = client();
  auto lease = holder.acquire("key", {.ttl = 10min, .auto_extend = true});
  auto other_lease = holder.acquire("other", {.ttl = 10min});
  EXPECT_FALSE(lease.lost().stop_requested());
  std::filesystem::remove_all(path.parent_path());
  const auto start = steady_clock::now();
  EXPECT_TRUE(eventually([&] { return lease.lost().stop_requested() && other_lease.lost().stop_requested(); }));
  EXPECT_LT(steady_clock::now() - start, soon) << "the loss must be detected before the next renewal";
  EXPECT_TRUE(client().try_acquire("key"));
  // Locks in the new file are not affected.
  const auto later = holder.acquire("key", {.ttl = 10min});
  (void)holder.is_locked("key");
  EXPECT_FALSE(later.lost().stop_requested());
}

// Another process would not see the locks of this one, which writes to the old log.
TEST_F(Sqlite, LeasesAreLostSoonAfterLogIsDeleted) {
  for (const std::vector<std::string>& suffixes : {std::vector<std::string>{"-wal", "-shm"}, {"-wal"}, {"-shm"}}) {
    auto holder = client();
    auto lease = holder.acquire("key", {.ttl = 10min, .auto_extend = true});
    for (const auto& suffix : suffixes) std::filesystem::remove(path.string() + suffix);
    const auto start = steady_clock::now();
    EXPECT_TRUE(eventually([&] { return lease.lost().stop_requested(); }));
    EXPECT_LT(steady_clock::now() - start, soon) << "the loss must be detected before the next renewal";
    std::filesystem::remove_all(path.parent_path());
  }
}

TEST_F(Sqlite, LeasesAreLostAfterLogIsDeletedInASandboxWithoutStatx) {
  expect_in_child([&]() -> std::string {
    if (!forbid_statx()) return "no sandbox";
    auto holder = client();
    auto lease = holder.acquire("key", {.ttl = 10min, .auto_extend = true});
    std::filesystem::remove(path.string() + "-wal");
    return eventually([&] { return lease.lost().stop_requested(); }) ? "" : "the lease is not lost";
  });
}

TEST_F(Sqlite, ManyProcessesCanCreateFileConcurrently) {
  for (int round = 0; round < 5; ++round) {
    path = folder.path() / ("round" + std::to_string(round)) / "locks.db";
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
      children.push_back(fork_when_idle());
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

TEST_F(Sqlite, TreatsSqliteSpecialNamesAsPaths) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  auto one = open_with_long_timeout("sqlite::memory:");
  auto other = open_with_long_timeout("sqlite::memory:");
  const auto lease = one.try_acquire("key");
  EXPECT_FALSE(is_granted(other.try_acquire("key")));
  std::filesystem::current_path(before);
}

TEST_F(Sqlite, FindsDefaultPathFromEnvironment) {
  setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(default_sqlite_path(), "/state/syncguard/locks.db");
  setenv("XDG_STATE_HOME", "relative", 1);
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(default_sqlite_path(), "/home/me/.local/state/syncguard/locks.db");
}

TEST_F(Sqlite, ProcessesKilledAtAnyTimeBlockNoOtherAndLoseNoCounter) {
  { (void)client().is_locked("storm"); }
  const SharedEvidence evidence;
  survive_kills([this] { return client(); }, *evidence);
  SqliteClient outsider(path);
  EXPECT_EQ(outsider("PRAGMA integrity_check"), "ok");
  EXPECT_GE(std::stoull(outsider("SELECT fence FROM syncguard_fence_counters")), evidence->newest_fence.load());
}

}  // namespace
}  // namespace syncguard::testing
