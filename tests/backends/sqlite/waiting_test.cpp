// Waiting for a lock on the SQLite backend: dead and frozen waiters, lost turns, wake-up files.

#include "backends/sqlite/wake_files.hpp"
#include "fixture.hpp"
#include "support/eventually.hpp"
#include "support/waiting_processes.hpp"

#include <syncguard/memory.hpp>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

TEST_F(Sqlite, WaitersAreWokenByReplacementFile) {
  auto holder = client();
  auto waiter = client();
  for (const bool remove_files : {false, true}) {
    if (remove_files) std::filesystem::remove_all(path.parent_path());
    auto lease = holder.acquire("key", {.ttl = 10min});
    auto waiting = std::async(std::launch::async, [&] { (void)waiter.acquire("key", patient); });
    ASSERT_TRUE(eventually([&] { return SqliteClient{path}("SELECT count(*) FROM syncguard_locks_waiters") == "1"; }));
    EXPECT_TRUE(lease.release());
    EXPECT_EQ(waiting.wait_for(soon), std::future_status::ready) << (remove_files ? "new" : "old");
    waiting.get();
  }
}

// The processes of these waiters are frozen, so nothing answers for them.
TEST_F(Sqlite, FrozenCrowdCostsLiveWaiterHalfASecond) {
  { (void)client().is_locked("key"); }
  for (const int frozen : {1, 10, 100, 1000}) {
    steady_clock::duration took{};
    EXPECT_TRUE(succeeds_once([&] {
      auto locks = client();
      auto other = client();
      auto lease = locks.acquire("key", {.ttl = 10min});
      const auto now = std::to_string(MemoryStore::system_now().time_since_epoch().count());
      SqliteClient{path}(
          "DELETE FROM syncguard_locks_waiters;"
          "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT ?1) "
          "INSERT INTO syncguard_locks_waiters (key, waiter, place, seen_at_ms) "
          "SELECT 'key', printf('frozen%016d', x), x, CAST(?2 AS INTEGER) FROM c",
          {std::to_string(frozen), now});
      auto waiting = std::async(std::launch::async, [&] { return other.acquire("key", patient).release(); });
      EXPECT_TRUE(eventually([&] {
        return SqliteClient{path}("SELECT count(*) FROM syncguard_locks_waiters") == std::to_string(frozen + 1);
      }));
      const auto start = steady_clock::now();
      EXPECT_TRUE(lease.release());
      EXPECT_TRUE(waiting.get());
      took = steady_clock::now() - start;
      return took < max_delay_by_dead_waiters;
    })) << frozen
        << " frozen waiters cost " << std::chrono::duration<double>(took).count() << " s";
  }
}

QueueOfKey queue_in(const std::filesystem::path& path) {
  // Creates the tables, and closes the database before processes are forked.
  { (void)open_with_long_timeout("sqlite:" + path.string()).is_locked("key"); }
  return {.url = "sqlite:" + path.string(),
          .clear = [path] { SqliteClient{path}("DELETE FROM syncguard_locks_waiters"); },
          .expect_waiters =
              [path](int count) {
                EXPECT_TRUE(eventually([&] {
                  return SqliteClient{path}("SELECT count(*) FROM syncguard_locks_waiters") == std::to_string(count);
                }));
              }};
}

TEST_F(Sqlite, FrozenWaitersTogetherCostLiveOnesHalfASecond) {
  expect_dead_waiters_cost_half_a_second(queue_in(path), &WaitingProcesses::freeze);
}

TEST_F(Sqlite, KilledWaitersTogetherCostLiveOnesHalfASecond) {
  expect_dead_waiters_cost_half_a_second(queue_in(path), &WaitingProcesses::kill);
}

// Its turn came while it was not looking, and another waiter was faster.
TEST_F(Sqlite, WaiterThatLostItsTurnUnnoticedIsServedNext) {
  struct {
    const char* description;
    const char* lose_turn;
  } const cases[] = {
      {"its turn is over", "UPDATE syncguard_locks_waiters SET turn_until_ms = 1700000000000"},
      {"its entry was removed after the turn", "DELETE FROM syncguard_locks_waiters"},
  };
  auto locks = client();
  for (const auto& [description, lose_turn] : cases) {
    SCOPED_TRACE(description);
    auto lease = locks.acquire("key", {.ttl = 10min});
    auto other = client();
    auto waiting = std::async(std::launch::async, [&] { return other.acquire("key", patient).release(); });
    const auto has_place = [&] {
      return SqliteClient{path}("SELECT count(*) FROM syncguard_locks_waiters WHERE turn_until_ms IS NULL") == "1";
    };
    EXPECT_TRUE(eventually(has_place));
    const auto waiter = SqliteClient{path}("SELECT waiter FROM syncguard_locks_waiters");
    SqliteClient{path}(lose_turn);
    const auto start = steady_clock::now();
    // As the process that passed the turn did after its commit.
    sqlite::WakeFiles(sqlite::Folder(path)).notify(waiter);
    EXPECT_TRUE(eventually(has_place)) << "no release would wake it";
    EXPECT_TRUE(lease.release());
    EXPECT_TRUE(waiting.get());
    EXPECT_LT(steady_clock::now() - start, soon);
  }
}

TEST_F(Sqlite, ReleaseWritesOnlyTheWakeUpFileOfItsWaiter) {
  auto locks = client();
  auto lease = locks.acquire("key", {.ttl = 10min});
  auto other = client();
  auto waiting = std::async(std::launch::async, [&] { return other.acquire("key", patient).release(); });
  EXPECT_TRUE(eventually([&] { return SqliteClient{path}("SELECT count(*) FROM syncguard_locks_waiters") == "1"; }));
  const auto own = sqlite::WakeFiles::number_for(SqliteClient{path}("SELECT waiter FROM syncguard_locks_waiters"));
  const sqlite::WakeFiles files{sqlite::Folder(path)};
  for (unsigned number = 0; number < sqlite::WakeFiles::count; ++number) ASSERT_TRUE(files.prepare(number));
  EXPECT_TRUE(lease.release());
  EXPECT_TRUE(waiting.get());
  for (unsigned number = 0; number < sqlite::WakeFiles::count; ++number) {
    const bool written = std::filesystem::file_size(sqlite::WakeFiles::path(path, number)) > 0;
    EXPECT_EQ(written, number == own) << number;
  }
}

TEST_F(Sqlite, ClockSetBackDoesNotReserveKeyForLong) {
  auto locks = client();
  (void)locks.is_locked("key");
  {
    SqliteClient{path}(
        "INSERT INTO syncguard_locks_waiters (key, waiter, place, seen_at_ms, turn_until_ms) "
        "VALUES ('key', 'xxxxxxxxxxxxxxxxxxxxxx', 1, 0, 99999999999999)");
  }
  EXPECT_TRUE(locks.try_acquire("key"));
}

}  // namespace
}  // namespace syncguard::testing
