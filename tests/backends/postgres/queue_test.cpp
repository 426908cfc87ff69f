// The queue of waiters in PostgreSQL: lost turns, and waiters that are dead, frozen or far away.

#include "fixture.hpp"
#include "servers/counting_proxy.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/waiting_processes.hpp"

#include <syncguard/async.hpp>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct PostgresQueue : Postgres {
  void expect_waiters(int count) const {
    EXPECT_TRUE(eventually(
        [&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters") == std::to_string(count); }));
  }
  // The queue entry of a process that has just died.
  void add_dead_waiter(const std::string& key) const { add_waiter(key, LockId::generate().str()); }
};

TEST_F(PostgresQueue, TurnsBehindManyDeadWaitersAreSeen) {
  add_waiters("key", "dead n", 150);
  auto locks = client();
  EXPECT_TRUE(succeeds_once([&] {
    const auto id = LockId::generate().str();
    add_waiter("key", id);
    server.execute("UPDATE syncguard_locks_waiters SET turn_until_ms = " + server_now + " + 300 WHERE waiter = $1",
                   {id});
    const auto lease = locks.try_acquire("key");
    return !lease;
  })) << "the key is reserved";
}

TEST_F(PostgresQueue, WaiterThatLostItsTurnIsWokenByNextRelease) {
  auto locks = client();
  auto waiter = client();
  auto lease = locks.acquire("key");
  std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient)); });
  expect_waiters(1);
  // A TypeScript process acquires the lock after the waiter was notified, but before it tries.
  const auto other = LockId::generate();
  PostgresClient outsider(server);
  outsider("BEGIN; SELECT pg_advisory_xact_lock(hashtext('key'))");
  outsider("UPDATE syncguard_locks SET lock_id = '" + other.str() + "'");
  outsider("UPDATE syncguard_locks_waiters SET turn_until_ms = " + server_now + " + 50");
  outsider("SELECT pg_notify('syncguard_wake', waiter || ' unknown 50') FROM syncguard_locks_waiters");
  outsider("COMMIT");
  EXPECT_TRUE(eventually(
      [&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters WHERE turn_until_ms = 0") == "1"; }));
  const auto start = steady_clock::now();
  EXPECT_TRUE(locks.release(other));
  waiting.join();
  EXPECT_LT(steady_clock::now() - start, soon);
  (void)lease.detach();
}

// After another waiter let its turn lapse, all entries are removed, and after a crash of the server, too.
TEST_F(PostgresQueue, WaiterWithoutEntryReturnsToItsPlace) {
  auto locks = client();
  auto waiter = client();
  auto lease = locks.acquire("key", {.ttl = 10min});
  std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient)); });
  expect_waiters(1);
  const auto entry = "SELECT waiter || ' ' || place FROM syncguard_locks_waiters";
  const auto before = server.execute(entry);
  server.execute("DELETE FROM syncguard_locks_waiters");
  EXPECT_TRUE(eventually([&] { return server.execute(entry) == before; }));
  const auto start = steady_clock::now();
  EXPECT_TRUE(lease.release());
  waiting.join();
  EXPECT_LT(steady_clock::now() - start, soon);
}

TEST_F(PostgresQueue, ReleaseByAnotherLibraryIsNoticedWithinASecond) {
  auto locks = client();
  auto waiter = client();
  (void)waiter.is_locked("key");
  auto lease = locks.acquire("key", {.ttl = 10min});
  EXPECT_TRUE(succeeds_once([&] {
    std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient).release()); });
    expect_waiters(1);
    server.execute("DELETE FROM syncguard_locks");
    const auto start = steady_clock::now();
    waiting.join();
    const auto took = steady_clock::now() - start;
    lease = locks.acquire("key", {.ttl = 10min});
    return took < 1100ms;
  }));
}

// A waiter looks when the turn of another waiter ends. The next turn, given shortly before that, needs a look of its
// own.
TEST_F(PostgresQueue, TurnGivenShortlyBeforeALookIsSeenToo) {
  auto locks = client();
  auto waiter = client();
  auto lease = locks.acquire("key", {.ttl = 10min});
  add_waiter("key", LockId::generate().str(), 300);
  std::thread waiting([&] {
    EXPECT_TRUE(waiter.acquire("key", {.wait = {.timeout = 10min, .retry_delay = 5min, .max_delay = 5min}}));
  });
  expect_waiters(2);
  server.execute("SELECT pg_notify('syncguard_wake', 'another ' || left(encode(sha256('key'), 'hex'), 16) || ' 250')");
  std::this_thread::sleep_for(250ms);
  const auto start = steady_clock::now();
  EXPECT_TRUE(lease.release());
  waiting.join();
  EXPECT_LT(steady_clock::now() - start, soon);
}

TEST_F(PostgresQueue, DeadWaitersDelayOthersAtMostHalfASecond) {
  auto locks = client();
  auto waiter = client();
  EXPECT_TRUE(succeeds_once([&] {
    auto lease = locks.acquire("key");
    for (int i = 0; i < 5; ++i) add_dead_waiter("key");
    std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient)); });
    expect_waiters(6);
    const auto start = steady_clock::now();
    EXPECT_TRUE(lease.release());
    waiting.join();
    const auto took = steady_clock::now() - start;
    EXPECT_LT(took, soon);
    server.execute("DELETE FROM syncguard_locks_waiters");
    return took < 500ms;
  }));
}

struct PostgresDeadWaiters : PostgresQueue {
  const QueueOfKey queue{.url = server.url(),
                         .clear = [this] { server.execute("DELETE FROM syncguard_locks_waiters"); },
                         .expect_waiters = [this](int count) { expect_waiters(count); }};
};

TEST_F(PostgresDeadWaiters, FrozenWaitersTogetherCostLiveOnesHalfASecond) {
  expect_dead_waiters_cost_half_a_second(queue, &WaitingProcesses::freeze);
}

TEST_F(PostgresDeadWaiters, KilledWaitersTogetherCostLiveOnesHalfASecond) {
  expect_dead_waiters_cost_half_a_second(queue, &WaitingProcesses::kill);
}

TEST_F(PostgresDeadWaiters, HalfOpenConnectionOfAWaiterCostsLiveOnesHalfASecond) {
  steady_clock::duration took{};
  EXPECT_TRUE(succeeds_once([&] {
    server.execute("DELETE FROM syncguard_locks_waiters");
    CountingProxy proxy(server.port());
    auto holder = client();
    auto unreachable =
        open_with_long_timeout("postgres://postgres@127.0.0.1:" + std::to_string(proxy.port()) + "/postgres");
    auto waiter = client();
    (void)waiter.is_locked("key");
    auto lease = holder.acquire("key", {.ttl = 10min});
    std::stop_source stop;
    std::thread cut_off([&] { (void)error_of([&] { (void)unreachable.acquire("key", patient, stop.get_token()); }); });
    expect_waiters(1);
    proxy.stall();
    std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient).release()); });
    expect_waiters(2);
    const auto start = steady_clock::now();
    EXPECT_TRUE(lease.release());
    waiting.join();
    took = steady_clock::now() - start;
    EXPECT_LT(took, soon);
    stop.request_stop();
    cut_off.join();
    return took < max_delay_by_dead_waiters;
  })) << std::chrono::duration<double>(took).count()
      << " s";
}

TEST_F(PostgresQueue, DeadWaitersDelayOnlyTheFirstWaiter) {
  auto locks = client();
  constexpr int count = 3;
  std::vector<Locks> waiters;
  for (int i = 0; i < count; ++i) waiters.push_back(client());
  for (auto& waiter : waiters) (void)waiter.is_locked("key");
  EXPECT_TRUE(succeeds_once([&] {
    auto lease = locks.acquire("key");
    for (int i = 0; i < 10; ++i) add_dead_waiter("key");
    std::vector<std::thread> threads;
    for (auto& waiter : waiters) threads.emplace_back([&] { EXPECT_TRUE(waiter.acquire("key", patient)); });
    expect_waiters(10 + count);
    const auto start = steady_clock::now();
    EXPECT_TRUE(lease.release());
    for (auto& thread : threads) thread.join();
    const auto took = steady_clock::now() - start;
    server.execute("DELETE FROM syncguard_locks_waiters");
    return took < 1s;
  })) << "the first live waiter must skip all dead ones, so that the others need not";
}

// One of three clients has a round-trip time of 80 ms.
TEST_F(PostgresQueue, DistantWaiterGetsItsTurn) {
  CountingProxy proxy(server.port(), 40ms);
  const auto far_url =
      "postgres://postgres@127.0.0.1:" + std::to_string(proxy.port()) + "/postgres?application_name=far";
  std::array<Locks, 3> clients = {client(), client(), open_with_long_timeout(far_url)};
  std::array<std::atomic<int>, 3> turns{};
  for (auto& locks : clients) (void)locks.is_locked("key");
  std::vector<std::thread> threads;
  std::atomic<bool> ending = false;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    threads.emplace_back([&, i] {
      while (!ending) {
        const auto lease = clients[i].acquire("key", patient);
        ++turns[i];
      }
    });
  }
  // The distant client needs four round trips between two turns. In that time, the others have many turns.
  EXPECT_TRUE(eventually([&] { return turns[2] >= 5; }))
      << "turns of the near clients: " << turns[0] << " and " << turns[1];
  ending = true;
  for (auto& thread : threads) thread.join();
}

struct PostgresLooks : PostgresQueue {
  // Waits for the keys "key 1", "key 2" and so on, which another client holds. Returns when the last waiter has joined.
  void start_waiting(int keys) {
    hold_keys(1, keys);
    for (int i = 1; i <= keys; ++i) {
      // A lock that a waiter gets stays held. Its release would wait for the rows that a test has locked.
      locks.async_acquire("key " + std::to_string(i), patient, [](const std::exception_ptr& error, Lease lease) {
        if (!error) (void)lease.detach();
      });
    }
    expect_waiters(keys);
  }
  // Until then, no connection of client() may wait for another transaction.
  template <typename Condition>
  void expect_without_waiting(Condition condition) const {
    bool was_blocked = false;
    EXPECT_TRUE(eventually([&] {
      was_blocked = was_blocked || connections("cardinality(pg_blocking_pids(pid)) > 0") > 0;
      return condition();
    }));
    EXPECT_FALSE(was_blocked);
  }
  // As if the waiters had not been seen for a while. Returns the time of that.
  [[nodiscard]] std::string forget_signs_of_life() const {
    server.execute("UPDATE syncguard_locks_waiters SET seen_at_ms = seen_at_ms - 20000 WHERE seen_at_ms > 1");
    return server.execute("SELECT max(seen_at_ms) FROM syncguard_locks_waiters");
  }
  // How many waiters were recorded as alive since then.
  [[nodiscard]] int seen_since(const std::string& time) const {
    return std::stoi(
        server.execute("SELECT count(*) FROM syncguard_locks_waiters WHERE seen_at_ms > $1::bigint", {time}));
  }

  Locks locks = client();
};

TEST_F(PostgresLooks, RecordSignsOfLifeWithoutWaiting) {
  start_waiting(2);
  PostgresClient outsider(server);
  const auto before = forget_signs_of_life();
  outsider("BEGIN; SELECT key FROM syncguard_locks_waiters WHERE key = 'key 2' FOR UPDATE");
  expect_without_waiting([&] { return seen_since(before) == 1; });
}

TEST_F(PostgresLooks, TakeLapsedTurnsWithoutWaiting) {
  start_waiting(1);
  add_waiter("key 1", "dead");
  add_waiter("key 1", "of another client");
  server.execute("UPDATE syncguard_locks_waiters SET turn_until_ms = " + server_now + " - 1000 WHERE waiter = 'dead'");
  PostgresClient outsider(server);
  outsider("BEGIN; SELECT key FROM syncguard_locks_waiters WHERE waiter = 'of another client' FOR UPDATE");
  server.execute("DELETE FROM syncguard_locks");
  expect_without_waiting([&] {
    return server.execute("SELECT count(*) FROM syncguard_locks_waiters WHERE waiter <> 'of another client'") == "0";
  });
}

// Others wait for each of these transactions, so it must be short.
TEST_F(PostgresLooks, UpdateAtMost64WaitersPerTransaction) {
  start_waiting(500);
  const auto before = forget_signs_of_life();
  EXPECT_TRUE(eventually([&] { return seen_since(before) == 500; }));
  EXPECT_LE(std::stoi(server.execute("SELECT max(waiters) FROM (SELECT count(*) AS waiters FROM "
                                     "syncguard_locks_waiters GROUP BY xmin::text) AS transactions")),
            64);
}

TEST_F(PostgresLooks, JoiningRemovesLongDeadWaitersOfOtherKeysWithoutWaiting) {
  add_waiters("other n", "dead n", 200);
  PostgresClient outsider(server);
  outsider("BEGIN; SELECT key FROM syncguard_locks_waiters WHERE key = 'other 1' FOR UPDATE");
  hold_keys(1, 2);
  for (const auto* const key : {"key 1", "key 2"}) {
    locks.async_acquire(key, patient, [](const std::exception_ptr& error, Lease lease) {
      if (!error) (void)lease.detach();
    });
  }
  expect_without_waiting([&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters") == "3"; });
}

TEST_F(PostgresQueue, ReleaseReadsOnlyWaitersOfItsKey) {
  add_waiters("other n", "waiter n", 20000);
  server.execute("ANALYZE syncguard_locks_waiters");
  const auto rows_read = [&] {
    return std::stoll(
        server.execute("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'syncguard_locks_waiters'"));
  };
  const auto before = rows_read();
  {
    auto locks = client("&pool=1");
    for (int i = 0; i < 20; ++i) (void)locks.acquire("key");
  }
  // The server updates the statistics when a connection ends.
  EXPECT_TRUE(eventually([&] { return connections() == 0; }));
  EXPECT_LT(rows_read() - before, 1000);
}

// Connections keep the plans that they made when the table was nearly empty, or had the entries of one key.
TEST_F(PostgresQueue, PlansOfAnEmptyTableReadOnlyWaitersOfTheirKey) {
  const auto rows_read = [&] {
    return std::stoll(server.execute(
        "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'syncguard_locks_waiters')"
        " + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'syncguard_locks_waiters')"));
  };
  for (const int analyzed : {0, 50}) {
    SCOPED_TRACE(analyzed);
    server.execute("TRUNCATE syncguard_locks_waiters");
    add_waiters("key", "analyzed n", analyzed);
    server.execute("ANALYZE syncguard_locks_waiters");
    server.execute("DELETE FROM syncguard_locks_waiters");
    std::int64_t before = 0;
    {
      auto holder = client("&pool=1");
      auto waiter = client("&pool=1");
      const auto hand_over = [&] {
        auto lease = holder.acquire("key", {.ttl = 10min});
        std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient).release()); });
        std::this_thread::sleep_for(300ms);  // a statement here would be counted
        EXPECT_TRUE(lease.release());
        waiting.join();
      };
      for (int i = 0; i < 3; ++i) hand_over();
      add_waiters("before n", "before n", 20000, server_now);
      server.execute(
          "INSERT INTO syncguard_locks_waiters SELECT 'after ' || waiter, 'after ' || key, 99999999999999 + place, "
          "reservation_ms, seen_at_ms, 0 FROM syncguard_locks_waiters");
      // Without waiting for the statistics of these connections.
      std::this_thread::sleep_for(1500ms);
      before = rows_read();
      hand_over();
    }
    EXPECT_TRUE(eventually([&] { return connections() == 0; }));
    EXPECT_LT(rows_read() - before, 10000);
  }
}

// The waiters are so far away that many of them are looking when they give up. Such a look must not bring them back.
TEST_F(PostgresQueue, WaitersThatLeaveWhileTheyLookLeaveNothingBehind) {
  constexpr int count = 50;
  CountingProxy proxy(server.port(), 40ms);
  auto locks = open_with_long_timeout("postgres://postgres@127.0.0.1:" + std::to_string(proxy.port()) + "/postgres");
  for (const auto pause : {100ms, 280ms, 460ms}) {
    server.execute("DELETE FROM syncguard_locks");
    hold_keys(1, count);
    std::stop_source stop;
    std::vector<std::thread> threads;
    for (int i = 1; i <= count; ++i) {
      threads.emplace_back([&, i] {
        (void)error_of([&] { (void)locks.acquire("key " + std::to_string(i), patient, stop.get_token()).detach(); });
      });
    }
    expect_waiters(count);
    server.execute("DELETE FROM syncguard_locks");
    std::this_thread::sleep_for(pause);
    stop.request_stop();
    for (auto& thread : threads) thread.join();
    expect_waiters(0);
  }
}

}  // namespace
}  // namespace syncguard::testing
