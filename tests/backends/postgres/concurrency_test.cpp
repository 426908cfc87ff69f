// PostgreSQL under concurrency: forced interleavings, canceling, waiting, and servers that stop or hang.

#include "fixture.hpp"
#include "servers/counting_proxy.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/fork_when_idle.hpp"
#include "support/storm.hpp"
#include "support/watch_through_restart.hpp"

#include <syncguard/async.hpp>

#include <asio/io_context.hpp>

#include <gmock/gmock.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

const std::string take_advisory_lock = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('key'))";

struct PostgresRaces : Postgres {
  // Waits until this many operations wait for a lock on the server.
  void expect_blocked(int count) const {
    EXPECT_TRUE(eventually([&] { return connections("wait_event_type = 'Lock'") == count; }));
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// Interleavings

TEST_F(PostgresRaces, ExtendAcrossExpiryAndAcquireDoNotBothSucceed) {
  auto holder = client("&operation_timeout=20s");
  auto other = client("&operation_timeout=20s");
  auto lease = holder.acquire("key", {.ttl = 300ms});
  const auto id = lease.detach();
  PostgresClient outsider(server);
  outsider(take_advisory_lock);
  std::atomic<int> winners{0};
  std::thread extending([&] {
    if (holder.extend(id, 30s)) ++winners;
  });
  expect_blocked(1);
  // Longer than the ttl and the tolerance.
  std::this_thread::sleep_for(1500ms);
  std::thread acquiring([&] {
    if (auto taken = other.try_acquire("key")) {
      ++winners;
      (void)taken->detach();
    }
  });
  expect_blocked(2);
  outsider("COMMIT");
  extending.join();
  acquiring.join();
  EXPECT_EQ(winners, 1) << "only the acquire: the lock had expired before the extend could run";
  EXPECT_FALSE(holder.admin().owns(id));
}

TEST_F(PostgresRaces, TimeSpentWaitingForLocksDoesNotCountAsTtl) {
  auto locks = client("&operation_timeout=20s");
  PostgresClient outsider(server);
  outsider(take_advisory_lock);
  std::optional<Lease> lease;
  std::thread acquiring([&] { lease = locks.try_acquire("key", {.ttl = 30s}); });
  expect_blocked(1);
  std::this_thread::sleep_for(1s);
  const auto waited_until =
      std::stoll(server.execute("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"));
  outsider("COMMIT");
  acquiring.join();
  ASSERT_TRUE(lease);
  const auto expires_at = std::stoll(server.execute("SELECT expires_at_ms FROM syncguard_locks"));
  EXPECT_GE(expires_at - waited_until, 30'000) << "the server must count the ttl from the grant";
  EXPECT_LE(lease->remaining(), 29s)
      << "the client must count the ttl from its request, so that it never expects more time than the server";
}

TEST_F(PostgresRaces, NewKeyNeverRepeatsFence) {
  constexpr int clients = 8;
  std::mutex mutex;
  std::multiset<std::uint64_t> fences;
  std::vector<Locks> all;
  for (int i = 0; i < clients; ++i) all.push_back(client("&pool=2"));
  for (auto& locks : all) (void)locks.is_locked("other");
  PostgresClient outsider(server);
  outsider(take_advisory_lock);
  std::vector<std::thread> threads;
  for (auto& locks : all) {
    threads.emplace_back([&] {
      auto lease = locks.acquire("key", {.wait = {.timeout = 30s}});
      const std::lock_guard lock(mutex);
      fences.insert(lease.fence().value());
    });
  }
  expect_blocked(clients);
  outsider("COMMIT");
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(fences.size(), static_cast<std::size_t>(clients));
  EXPECT_EQ(std::set(fences.begin(), fences.end()).size(), fences.size());
}

TEST_F(PostgresRaces, ReleaseDoesNotRemoveLockAcquiredByAnother) {
  auto locks = client("&operation_timeout=20s");
  auto lease = locks.acquire("key");
  const auto id = lease.detach();
  const auto other = LockId::generate().str();
  PostgresClient outsider(server);
  outsider(take_advisory_lock);
  std::optional<bool> released;
  std::thread releasing([&] { released = locks.release(id); });
  expect_blocked(1);
  outsider("UPDATE syncguard_locks SET lock_id = '" + other + "'; COMMIT");
  releasing.join();
  EXPECT_EQ(released, false);
  EXPECT_EQ(server.execute("SELECT lock_id FROM syncguard_locks"), other);
}

TEST_F(PostgresRaces, WriterWithoutAdvisoryLockIsNotOverwritten) {
  auto locks = client("&operation_timeout=20s");
  (void)locks.is_locked("key");
  const auto other = LockId::generate().str();
  PostgresClient outsider(server);
  // An uncommitted row: the upsert waits for the commit, then finds a live lock.
  outsider("BEGIN; INSERT INTO syncguard_locks VALUES ('key', '" + other +
           "', 99999999999999, 1, '000000000000009', 'key')");
  std::optional<bool> granted;
  std::thread acquiring([&] {
    const auto lease = locks.try_acquire("key");
    granted = lease.has_value();
  });
  expect_blocked(1);
  outsider("COMMIT");
  acquiring.join();
  EXPECT_EQ(granted, false);
  EXPECT_EQ(server.execute("SELECT lock_id FROM syncguard_locks"), other);
}

// ---------------------------------------------------------------------------------------------------------------------
// Timeouts and cancellation

TEST_F(PostgresRaces, TimeoutCancelsServerWorkAndLeavesNothing) {
  auto locks = client("&operation_timeout=2s");
  (void)locks.is_locked("key");
  PostgresClient outsider(server);
  outsider(take_advisory_lock);
  const auto start = steady_clock::now();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  EXPECT_LT(steady_clock::now() - start, 15s);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::network_timeout) << error->what();
  EXPECT_TRUE(eventually([&] { return connections("state <> 'idle'") == 0; }))
      << "no statement or transaction must be left on the server";
  outsider("COMMIT");
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_EQ(server.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
}

TEST_F(PostgresRaces, StopCancelsServerWorkAndLeavesNothing) {
  auto locks = client("&operation_timeout=30s");
  (void)locks.is_locked("key");
  PostgresClient outsider(server);
  outsider(take_advisory_lock);
  std::stop_source stop;
  steady_clock::time_point stopped_at;
  std::thread stopper([&] {
    expect_blocked(1);
    stopped_at = steady_clock::now();
    stop.request_stop();
  });
  const auto error = error_of([&] { (void)locks.acquire("key", {}, stop.get_token()); });
  const auto ended_at = steady_clock::now();
  stopper.join();
  EXPECT_LT(ended_at - stopped_at, 15s) << "the stop must end the call; its timeout is 30 s";
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::aborted);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_TRUE(eventually([&] { return connections("wait_event_type = 'Lock'") == 0; }))
      << "the statement must be canceled before its timeout of 30 s";
  outsider("COMMIT");
  EXPECT_TRUE(eventually([&] { return connections("state <> 'idle'") == 0; }));
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_F(PostgresRaces, ExternallyTerminatedOrCanceledOperation) {
  auto locks = client("&operation_timeout=20s");
  (void)locks.is_locked("key");
  for (const auto& [function, code, in_doubt] :
       {std::tuple{"pg_terminate_backend", ErrorCode::service_unavailable, true},
        std::tuple{"pg_cancel_backend", ErrorCode::network_timeout, false}}) {
    PostgresClient outsider(server);
    outsider(take_advisory_lock);
    std::optional<LockError> error;
    std::thread acquiring([&] { error = error_of([&] { (void)locks.try_acquire("key"); }); });
    expect_blocked(1);
    server.execute("SELECT " + std::string(function) +
                   "(pid) FROM pg_stat_activity WHERE application_name = 'test' AND wait_event_type = 'Lock'");
    acquiring.join();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), code) << error->what();
    EXPECT_EQ(error->in_doubt(), in_doubt) << error->what();
    outsider("COMMIT");
    EXPECT_FALSE(locks.is_locked("key")) << "the next operation must get a working connection";
  }
}

TEST_F(PostgresRaces, IdleConnectionsClosedByServerAreReplaced) {
  auto locks = client();
  (void)locks.is_locked("key");
  server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test'");
  EXPECT_TRUE(eventually([&] { return connections() == 0; }));
  EXPECT_FALSE(locks.is_locked("key")) << "the caller must not notice";
}

// ---------------------------------------------------------------------------------------------------------------------
// One round trip

TEST_F(PostgresRaces, EveryOperationIsOneRoundTrip) {
  CountingProxy proxy(server.port());
  auto locks = open_with_long_timeout("postgres://postgres@127.0.0.1:" + std::to_string(proxy.port()) + "/postgres");
  const auto trips = [&](auto operation) {
    // Connecting takes additional round trips, preparing statements does not.
    operation();
    const int before = proxy.round_trips();
    operation();
    return proxy.round_trips() - before;
  };
  std::optional<Lease> lease;
  EXPECT_EQ(trips([&] {
              if (lease) (void)lease->release();
              lease = locks.try_acquire("key");
            }),
            2)
      << "a release and an acquire";
  EXPECT_EQ(trips([&] { (void)locks.try_acquire("key"); }), 1) << "the lock is held";
  EXPECT_EQ(trips([&] { (void)lease->extend(10s); }), 1);
  EXPECT_EQ(trips([&] { (void)locks.is_locked("key"); }), 1);
  EXPECT_EQ(trips([&] { (void)locks.lookup(lease->id()); }), 1);
}

// ---------------------------------------------------------------------------------------------------------------------
// Waiting

struct PostgresWaiting : Postgres {
  void expect_queue(int length) const {
    EXPECT_TRUE(eventually(
        [&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters") == std::to_string(length); }));
  }
};

TEST_F(PostgresWaiting, KilledListenerReconnects) {
  auto holder = client();
  auto waiter = client("&listen_url=postgres%3A%2F%2Fpostgres%40127.0.0.1%3A" + std::to_string(server.port()) +
                       "%2Fpostgres%3Fapplication_name%3Dlistener");
  auto lease = holder.acquire("key");
  std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient)); });
  expect_queue(1);
  const auto listener = [&] {
    return server.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'listener' AND state = 'idle'");
  };
  EXPECT_TRUE(eventually([&] { return !listener().empty(); }));
  const auto pid = listener();
  server.execute("SELECT pg_terminate_backend(" + pid + ")");
  EXPECT_TRUE(eventually([&] { return !listener().empty() && listener() != pid; }));
  const auto start = steady_clock::now();
  EXPECT_TRUE(lease.release());
  waiting.join();
  EXPECT_LT(steady_clock::now() - start, soon);
}

TEST_F(PostgresWaiting, KilledWaiterCostsOnlyTime) {
  // Forks before any threads are started.
  const pid_t child = fork_when_idle();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto doomed = client();
    while (!doomed.is_locked("key")) std::this_thread::sleep_for(5ms);
    (void)doomed.acquire("key", patient);
    _exit(0);
  }
  auto holder = client();
  auto waiter = client();
  auto lease = holder.acquire("key");
  expect_queue(1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::thread waiting([&] {
    EXPECT_TRUE(waiter.acquire(
        "key", {.wait = {.timeout = 60s, .max_retries = 1000, .retry_delay = 100ms, .max_delay = 200ms}}));
  });
  expect_queue(2);
  EXPECT_TRUE(lease.release());
  waiting.join();
  expect_queue(0);
}

TEST_F(PostgresWaiting, StaleEntriesAreSkippedAndCleared) {
  auto holder = client();
  auto waiter = client();
  auto lease = holder.acquire("key");
  add_waiters("key", "long gone", 1);
  std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient)); });
  EXPECT_TRUE(eventually([&] {
    return server.execute("SELECT count(*) FROM syncguard_locks_waiters WHERE waiter <> 'long gone'") == "1";
  }));
  const auto start = steady_clock::now();
  EXPECT_TRUE(lease.release());
  waiting.join();
  EXPECT_LT(steady_clock::now() - start, soon);
  expect_queue(0);
}

TEST_F(PostgresWaiting, ManyWaitersNeedOnlyPoolAndOneListenConnection) {
  auto holder = client();
  asio::io_context context;
  auto waiters = open_on(context.get_executor(), server.url("?application_name=waiters&pool=5"), with_long_timeout());
  std::vector<Lease> leases;
  constexpr int keys = 10;
  for (int i = 0; i < keys; ++i) leases.push_back(holder.acquire("key " + std::to_string(i), {.ttl = 10min}));
  constexpr int count = 500;
  std::atomic<int> done = 0;
  for (int i = 0; i < count; ++i) {
    waiters.async_acquire("key " + std::to_string(i % keys), patient,
                          [&](const std::exception_ptr& error, const Lease&) {
                            EXPECT_FALSE(error);
                            if (++done == count) context.stop();
                          });
  }
  std::thread running([&] { context.run_for(100s); });
  EXPECT_TRUE(eventually(
      [&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters") == std::to_string(keys); }));
  int most = 0;
  const auto look = [&] {
    most = std::max(
        most, std::stoi(server.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiters'")));
  };
  look();
  for (auto& lease : leases) EXPECT_TRUE(lease.release());
  while (done < count && !context.stopped()) {
    look();
    std::this_thread::sleep_for(20ms);
  }
  running.join();
  EXPECT_EQ(done, count);
  EXPECT_LE(most, 6);
  waiters.close();
}

// ---------------------------------------------------------------------------------------------------------------------
// Servers that stop or hang

TEST(PostgresFailures, HungServerGivesNetworkTimeoutAndIsUsedAgain) {
  PostgresServer server;
  setup_postgres_schema({.connection = server.url()});
  auto locks = open(server.url("?operation_timeout=2s"));
  (void)locks.acquire("warm");
  server.pause();
  const auto start = steady_clock::now();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  EXPECT_LT(steady_clock::now() - start, 15s);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::network_timeout);
  EXPECT_TRUE(error->in_doubt());
  std::this_thread::sleep_for(1s);
  server.resume();
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("other"); }); }));
  EXPECT_TRUE(eventually([&] { return server.execute("SELECT count(*) FROM syncguard_locks") == "0"; }))
      << "the acquire that timed out must be undone";
}

TEST(PostgresFailures, StoppedServerEndsPendingOperationsAndIsReconnected) {
  PostgresServer server({.configuration = {"max_prepared_transactions = 1"}});
  setup_postgres_schema({.connection = server.url()});
  auto locks = open(server.url("?application_name=test&operation_timeout=20s"));
  const auto lease = locks.acquire("held", {.ttl = 10min});
  for (const bool fast : {true, false}) {
    // A prepared transaction holds the advisory lock across the restart. An open connection might be closed before
    // ours, which would then get the lock.
    server.execute(take_advisory_lock + "; PREPARE TRANSACTION 'in the way'");
    std::optional<LockError> error;
    std::thread acquiring([&] { error = error_of([&] { (void)locks.try_acquire("key"); }); });
    EXPECT_TRUE(eventually([&] {
      return server.execute(
                 "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'test' AND "
                 "wait_event_type = 'Lock'") == "1";
    }));
    if (fast) {
      server.stop_fast();
    } else {
      server.stop_at_once();
    }
    acquiring.join();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::service_unavailable) << error->what();
    EXPECT_TRUE(error->in_doubt());
    expect_error(ErrorCode::service_unavailable, [&] { (void)locks.is_locked("held"); });
    server.start();
    server.execute("ROLLBACK PREPARED 'in the way'");
    EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("held"); }); }));
    EXPECT_TRUE(locks.admin().owns(lease.id())) << "the lock must survive the restart";
  }
}

TEST(PostgresFailures, WatchContinuesAfterRestart) {
  PostgresServer server;
  setup_postgres_schema({.connection = server.url()});
  expect_watch_continues_after_restart(
      server.url(), [&] { server.stop_fast(); }, [&] { server.start(); });
}

TEST(PostgresFailures, ProcessesKilledAtAnyTimeBlockNoOtherAndLoseNoCounter) {
  PostgresServer server;
  setup_postgres_schema({.connection = server.url()});
  const SharedEvidence evidence;
  survive_kills([&] { return open_with_long_timeout(server.url()); }, *evidence);
  EXPECT_GE(std::stoull(server.execute("SELECT fence FROM syncguard_fence_counters")), evidence->newest_fence.load());
}

TEST(PostgresFailures, RepeatedlyStoppedServerKeepsExclusionAndFences) {
  PostgresServer server;
  setup_postgres_schema({.connection = server.url()});
  const SharedEvidence evidence;
  survive_restarts(
      server.url(), *evidence, [&] { server.stop_at_once(); }, [&] { server.start(); });
  EXPECT_GE(std::stoull(server.execute("SELECT fence FROM syncguard_fence_counters")), evidence->newest_fence.load());
}

}  // namespace
}  // namespace syncguard::testing
