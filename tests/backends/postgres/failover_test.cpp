// Clients whose primary fails and whose standby is promoted.

#include "contract/contract.hpp"
#include "fixture.hpp"
#include "servers/counting_proxy.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/is_granted.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct PostgresFailover : ::testing::Test {
  PostgresFailover() { setup_postgres_schema({.connection = primary.url()}); }

  // A commit waits for the standby from now on.
  void make_standby_synchronous() const {
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.execute("SELECT pg_reload_conf()");
    EXPECT_TRUE(eventually([&] { return primary.execute("SHOW synchronous_standby_names") == "*"; }));
  }

  // A client of both servers. It uses the one that is the primary.
  [[nodiscard]] std::string both() const {
    return "postgres://postgres@127.0.0.1:" + std::to_string(primary.port()) +
           ",127.0.0.1:" + std::to_string(standby.port()) + "/postgres";
  }
  // The standby receives nothing from now on.
  void cut_off() const {
    standby.execute("ALTER SYSTEM SET primary_conninfo = ''");
    standby.execute("SELECT pg_reload_conf()");
    EXPECT_TRUE(eventually([&] { return standby.execute("SELECT count(*) FROM pg_stat_wal_receiver") == "0"; }));
  }

  // The primary crashes, and the standby is promoted.
  void fail_over() {
    primary.wait_for_replay_on(standby);
    primary.kill();
    standby.promote();
  }

  // The client has used the old primary. The lock that it holds was replicated to the new one.
  static void expect_to_go_on(Locks& locks, Lease& lease) {
    const auto start = steady_clock::now();
    int failed = 0;
    EXPECT_TRUE(eventually([&] {
      const auto error = error_of([&] { EXPECT_TRUE(lease.extend(1min)); });
      if (!error) return true;
      EXPECT_TRUE(error->retryable()) << error->what();
      ++failed;
      return false;
    }));
    const std::chrono::duration<double> took = steady_clock::now() - start;
    std::printf("works again after %.2f s and %d failed operations\n", took.count(), failed);
    EXPECT_LT(took, 15s) << "the client must not wait until a TCP connection to the dead server times out";
    EXPECT_FALSE(is_granted(locks.try_acquire("key")));
    for (int i = 0; i < 40; ++i) EXPECT_TRUE(locks.try_acquire("other")) << i;
    const auto fence = lease.fence();
    EXPECT_TRUE(lease.release());
    EXPECT_GT(locks.acquire("key", patient).fence(), fence);
  }

  PostgresServer primary;
  PostgresServer standby{{.primary = &primary}};
};

TEST_F(PostgresFailover, ClientFollowsAProxyToThePromotedServer) {
  CountingProxy proxy(standby.port());
  auto locks = open_with_long_timeout("postgres://postgres@127.0.0.1:" + std::to_string(proxy.port()) + "/postgres");
  primary.wait_for_replay_on(standby);
  for (int i = 0; i < 3; ++i) {
    expect_error(ErrorCode::service_unavailable, [&] { (void)locks.try_acquire("key"); });
  }
  // The connections to the standby still work, but are read-only.
  proxy.switch_to(primary.port());
  auto lease = locks.acquire("key", {.ttl = 10min});
  fail_over();
  proxy.switch_to(standby.port());
  expect_to_go_on(locks, lease);
}

TEST_F(PostgresFailover, ClientFindsThePromotedServerAmongItsHosts) {
  auto locks = open_with_long_timeout(both());
  auto lease = locks.acquire("key", {.ttl = 10min});
  fail_over();
  expect_to_go_on(locks, lease);
}

// The standby is asynchronous and loses the writes that it did not receive: the lock and its counter.
TEST_F(PostgresFailover, FencesGrowAlthoughTheNewestWereLost) {
  auto locks = open_with_long_timeout(both());
  Fence newest = locks.acquire("key").fence();
  primary.wait_for_replay_on(standby);
  const auto replicated = newest;
  cut_off();
  for (int i = 0; i < 10; ++i) newest = locks.acquire("key").fence();
  primary.kill();
  standby.promote();
  EXPECT_EQ(standby.execute("SELECT fence FROM syncguard_fence_counters"), std::to_string(replicated.value()));
  std::optional<Fence> next;
  EXPECT_TRUE(eventually([&] { return !error_of([&] { next = locks.acquire("key", patient).fence(); }); }));
  ASSERT_TRUE(next);
  EXPECT_GT(*next, newest);
}

TEST_F(PostgresFailover, HolderIsToldThatItsLockWasNotReplicated) {
  auto locks = open_with_long_timeout(both());
  primary.wait_for_replay_on(standby);
  cut_off();
  const auto lost = locks.acquire("lost", {.ttl = 9s, .auto_extend = true});
  primary.kill();
  standby.promote();
  const auto start = steady_clock::now();
  EXPECT_TRUE(eventually([&] { return lost.lost().stop_requested(); }));
  std::printf("told after %.2f s\n", std::chrono::duration<double>(steady_clock::now() - start).count());
  EXPECT_TRUE(locks.try_acquire("lost")) << "the promoted server does not know the lock";
}

// A grant waits for the standby, so a failover loses nothing that a caller has seen. Without the standby, no lock is
// granted, and one that was granted on the primary alone does not stay behind.
TEST_F(PostgresFailover, SynchronousStandbyLosesNoLock) {
  make_standby_synchronous();
  EXPECT_THAT(verdict_on(open_with_long_timeout(primary.url()).admin().diagnose(), "replication"),
              ::testing::StartsWith("fine: 1 standby connected; a failover to a synchronous one loses no lock"));
  auto locks = open_with_long_timeout(both());
  std::vector<Lease> leases;
  for (int i = 0; i < 20; ++i) leases.push_back(locks.acquire("key" + std::to_string(i), {.ttl = 10min}));
  cut_off();
  auto impatient = open(both() + "?operation_timeout=500ms");
  const auto error = error_of([&] { (void)impatient.try_acquire("not replicated"); });
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->in_doubt()) << error->what();
  primary.kill();
  standby.promote();
  for (int i = 0; i < 20; ++i) {
    const auto& lease = leases.at(static_cast<std::size_t>(i));
    std::optional<LockInfo> found;
    EXPECT_TRUE(eventually([&] { return !error_of([&] { found = locks.lookup("key" + std::to_string(i)); }); }));
    ASSERT_TRUE(found) << "lock " << i << " was lost";
    EXPECT_EQ(found->fence, lease.fence());
  }
  EXPECT_TRUE(locks.try_acquire("not replicated"));
}

// With the functions, or with plain statements.
struct PostgresSynchronousStandby : PostgresFailover, ::testing::WithParamInterface<bool> {
  PostgresSynchronousStandby() {
    if (!GetParam()) {
      primary.execute("DROP FUNCTION " +
                      primary.execute("SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc WHERE proname "
                                      "LIKE 'syncguard\\_%'"));
    }
    make_standby_synchronous();
  }
  void reconnect() const {
    standby.execute("ALTER SYSTEM SET primary_conninfo = 'user=postgres host=127.0.0.1 port=" +
                    std::to_string(primary.port()) + "'");
    standby.execute("SELECT pg_reload_conf()");
  }
  // The server process whose commit waits for the standby, or nothing.
  [[nodiscard]] std::string waiting_process() const {
    return primary.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
  }
  // An administrator cancels the wait: the server reports success, with a warning.
  void expect_in_doubt_if_canceled(const std::function<void()>& operation) const {
    auto error = std::async(std::launch::async, [&] { return error_of(operation); });
    ASSERT_TRUE(eventually([&] { return !waiting_process().empty(); }));
    primary.execute("SELECT pg_cancel_backend($1)", {waiting_process()});
    const auto failure = error.get();
    ASSERT_TRUE(failure) << "the standby does not have it";
    EXPECT_EQ(failure->code(), ErrorCode::service_unavailable) << failure->what();
    EXPECT_TRUE(failure->in_doubt()) << failure->what();
  }
};
INSTANTIATE_TEST_SUITE_P(Statements, PostgresSynchronousStandby, ::testing::Bool(),
                         [](const auto& with) { return with.param ? "Functions" : "Plain"; });

// The first attempt times out while its commit waits for the standby, and the cancel request ends that wait: the lock
// is committed on the primary alone. The next attempts find their own lock.
TEST_P(PostgresSynchronousStandby, RepeatedAcquireWaitsForIt) {
  auto locks = open(primary.url("?operation_timeout=1s"));
  (void)locks.try_acquire("warm up");
  cut_off();
  auto granted = std::async(std::launch::async, [&] {
    return locks.acquire("key", {.ttl = 10min, .wait = {.timeout = 60s, .retry_delay = 10ms, .max_delay = 10ms}})
        .detach();
  });
  const auto lock = [&] { return primary.execute("SELECT lock_id FROM syncguard_locks WHERE key = 'key'"); };
  EXPECT_TRUE(eventually([&] { return !lock().empty(); })) << "the first attempt is committed on the primary";
  // Several more, in processes of their own, because a canceled connection is not reused.
  std::set<std::string> processes;
  EXPECT_TRUE(eventually([&] {
    const auto process = waiting_process();
    if (!process.empty()) processes.insert(process);
    return processes.size() >= 3 || granted.wait_for(0s) == std::future_status::ready;
  }));
  EXPECT_EQ(granted.wait_for(0s), std::future_status::timeout) << "granted, although the standby does not have it";
  EXPECT_EQ(standby.execute("SELECT count(*) FROM syncguard_locks WHERE key = 'key'"), "0");
  reconnect();
  EXPECT_EQ(granted.get().str(), lock());
  EXPECT_EQ(standby.execute("SELECT lock_id FROM syncguard_locks WHERE key = 'key'"), lock());
}

TEST_P(PostgresSynchronousStandby, CanceledWaitForItIsInDoubt) {
  auto locks = open_with_long_timeout(primary.url());
  const auto id = locks.acquire("held", {.ttl = 10min}).detach();
  cut_off();
  // By its id: a failed acquire would be retracted, which succeeds without the standby.
  RawBackend backend(make_postgres_backend({.connection = primary.url()}));
  const auto new_id = LockId::generate();
  expect_in_doubt_if_canceled([&] { (void)backend.acquire("key", new_id, 10min); });
  expect_in_doubt_if_canceled([&] { (void)backend.acquire("key", new_id, 10min); });
  expect_in_doubt_if_canceled([&] { (void)locks.extend(id, 10min); });
  expect_in_doubt_if_canceled([&] { (void)locks.admin().raise_fence("key", Fence(1)); });
  expect_in_doubt_if_canceled([&] { (void)locks.release(id); });
}

// A warning that is not about the commit, here one of a trigger, changes nothing.
TEST_P(PostgresSynchronousStandby, WarningOfATriggerIsNoDoubt) {
  primary.execute(
      "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE WARNING ''beware''; RETURN NEW; END'; "
      "CREATE TRIGGER warn BEFORE INSERT OR UPDATE ON syncguard_locks FOR EACH ROW EXECUTE FUNCTION warn()");
  auto locks = open_with_long_timeout(primary.url());
  auto lease = locks.acquire("key");
  EXPECT_TRUE(lease.extend(1min));
}

struct Standby {
  enum class Kind { asynchronous, synchronous } kind;
  // Whether it is still connected when the primary crashes.
  enum class Link { connected, cut_off } link;
};

struct PostgresFailoverUnderLoad : PostgresFailover, ::testing::WithParamInterface<Standby> {};

// Clients acquire all the time while the primary crashes and the standby is promoted. A fence is higher than every
// fence that was granted before its acquire began. Some locks are released, others are kept, and counted afterwards.
TEST_P(PostgresFailoverUnderLoad, FencesGrowAndOnlyAsynchronousStandbyLosesLocks) {
  const auto [kind, link] = GetParam();
  const bool synchronous = kind == Standby::Kind::synchronous;
  const bool cut = link == Standby::Link::cut_off;
  if (synchronous) make_standby_synchronous();
  constexpr int workers = 8;
  std::atomic<bool> done = false;
  std::atomic<bool> promoted = false;
  std::mutex mutex;
  std::set<Fence> granted;
  std::map<std::string, Fence> kept;
  std::size_t granted_after_promotion = 0;
  std::vector<std::thread> threads;
  for (int worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      auto locks = open_with_long_timeout(both());
      for (int turn = 0; !done; ++turn) {
        const auto newest = [&] {
          const std::lock_guard<std::mutex> guard(mutex);
          return granted.empty() ? Fence() : *granted.rbegin();
        }();
        const auto own_key = "kept " + std::to_string(worker) + " " + std::to_string(turn);
        const auto error = error_of([&] {
          auto kept_lease = locks.acquire(own_key, {.ttl = 10min, .wait = {.timeout = 60s, .max_delay = 100ms}});
          (void)kept_lease.detach();
          {
            const std::lock_guard<std::mutex> guard(mutex);
            kept.emplace(own_key, kept_lease.fence());
          }
          const auto lease = locks.acquire("key", {.ttl = 2s, .wait = {.timeout = 60s, .max_delay = 100ms}});
          EXPECT_GT(lease.fence(), newest);
          const std::lock_guard<std::mutex> guard(mutex);
          EXPECT_TRUE(granted.insert(lease.fence()).second) << "granted twice: " << lease.fence();
          if (promoted) ++granted_after_promotion;
        });
        // The failover must not look like a wrong password or a broken table.
        if (error) {
          EXPECT_TRUE(error->retryable()) << error->what();
        }
      }
    });
  }
  const auto number_of = [&](const auto& counter) {
    const std::lock_guard<std::mutex> guard(mutex);
    return counter();
  };
  const auto number_kept = [&] { return number_of([&] { return kept.size(); }); };
  EXPECT_TRUE(eventually([&] { return number_of([&] { return granted.size(); }) >= 20; }));
  constexpr std::size_t unreplicated = 20;
  if (cut) cut_off();
  const auto kept_when_cut = number_kept();
  if (cut && synchronous) {
    EXPECT_TRUE(eventually([&] {
      return primary.execute("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "t";
    })) << "grants must wait for the standby";
  } else if (cut) {
    EXPECT_TRUE(eventually([&] { return number_kept() >= kept_when_cut + unreplicated; }));
  }
  primary.kill();
  const auto before_promotion = number_of([&] { return kept; });
  standby.promote();
  promoted = true;
  EXPECT_TRUE(eventually([&] { return number_of([&] { return granted_after_promotion; }) >= 50; }));
  done = true;
  for (auto& thread : threads) thread.join();

  auto locks = open_with_long_timeout(both());
  std::size_t lost = 0;
  for (const auto& [key, fence] : before_promotion) {
    const auto found = locks.lookup(key);
    if (!found || found->fence != fence) ++lost;
  }
  std::printf("lost %zu of %zu locks\n", lost, before_promotion.size());
  if (synchronous) {
    EXPECT_EQ(lost, 0U);
  } else if (cut) {
    EXPECT_GE(lost, unreplicated);
  }
}

INSTANTIATE_TEST_SUITE_P(Standbys, PostgresFailoverUnderLoad,
                         ::testing::Values(Standby{Standby::Kind::asynchronous, Standby::Link::connected},
                                           Standby{Standby::Kind::asynchronous, Standby::Link::cut_off},
                                           Standby{Standby::Kind::synchronous, Standby::Link::connected},
                                           Standby{Standby::Kind::synchronous, Standby::Link::cut_off}),
                         [](const auto& test) {
                           const std::string kind =
                               test.param.kind == Standby::Kind::synchronous ? "Synchronous" : "Asynchronous";
                           return kind + (test.param.link == Standby::Link::connected ? "Connected" : "CutOff");
                         });

// The standby is promoted, and the old primary was not stopped.
TEST_F(PostgresFailover, SplitBrainGrantsLockTwiceWithDifferentFences) {
  auto old_clients = open_with_long_timeout(both());
  auto held = old_clients.acquire("held", {.ttl = 10min});
  primary.wait_for_replay_on(standby);
  standby.promote();
  EXPECT_TRUE(held.extend(10min)) << "the old primary still serves its clients";
  const auto of_old_primary = old_clients.acquire("key", {.ttl = 10min});
  auto new_clients = open_with_long_timeout(standby.url());
  const auto of_new_primary = new_clients.acquire("key", {.ttl = 10min});
  EXPECT_GT(of_new_primary.fence(), of_old_primary.fence());
  Fence newest = of_new_primary.fence();
  for (int i = 0; i < 10; ++i) {
    for (auto* clients : {&old_clients, &new_clients}) {
      // Two grants within 100 us could have the same fence.
      std::this_thread::sleep_for(1ms);
      const auto fence = clients->acquire("another").fence();
      EXPECT_GT(fence, newest);
      newest = fence;
    }
  }
}

TEST_F(PostgresFailover, DiagnosisWarnsOfAsynchronousStandby) {
  EXPECT_TRUE(eventually([&] {
    return verdict_on(open_with_long_timeout(primary.url()).admin().diagnose(), "replication") ==
           "warning: 1 standby connected, none synchronous: a failover can lose the newest locks";
  }));
}

TEST_F(PostgresFailover, WaiterGetsTheLockOnThePromotedServer) {
  auto holder = open_with_long_timeout(both());
  auto lease = holder.acquire("key", {.ttl = 10min});
  auto waiter = open_with_long_timeout(both());
  std::thread waiting([&] {
    EXPECT_TRUE(waiter.acquire("key", {.wait = {.timeout = 60s, .retry_delay = 100ms, .max_delay = 500ms}}));
  });
  EXPECT_TRUE(eventually([&] { return primary.execute("SELECT count(*) FROM syncguard_locks_waiters") == "1"; }));
  fail_over();
  EXPECT_TRUE(eventually([&] { return !error_of([&] { EXPECT_TRUE(lease.release()); }); }));
  waiting.join();
}

}  // namespace
}  // namespace syncguard::testing
