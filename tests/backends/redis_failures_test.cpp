// A Redis that dies, hangs, forgets or comes back.

#include "eventually.hpp"
#include "expect_error.hpp"
#include "patience.hpp"
#include "servers/redis_server.hpp"
#include "signal.hpp"
#include "storm.hpp"

#include <syncguard/async.hpp>
#include <syncguard/syncguard.hpp>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/thread_pool.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

TEST(RedisFailures, ScriptsAreLoadedAgainWhenTheServerForgotThem) {
  RedisServer server;
  auto locks = open_patiently(server.url());
  auto lease = locks.acquire("key");
  server.command({"SCRIPT", "FLUSH"});
  EXPECT_TRUE(lease.extend(10s));
  server.command({"SCRIPT", "FLUSH"});
  EXPECT_TRUE(lease.release());
}

TEST(RedisFailures, ARestartedServerIsFoundAgainByTheNextOperation) {
  RedisServer server({.durable = true});
  auto locks = open_patiently(server.url());
  const auto lease = locks.acquire("key", {.ttl = 10min});
  server.kill();
  const auto down = error_of([&] { (void)locks.is_locked("key"); });
  ASSERT_TRUE(down);
  EXPECT_EQ(down->code(), ErrorCode::service_unavailable);
  server.start();
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }));
  EXPECT_TRUE(locks.is_locked("key"));
  EXPECT_TRUE(locks.owns(lease.id()));
}

TEST(RedisFailures, AnOperationThatWaitsForAConnectionGoesOnTheNewOne) {
  RedisServer server;
  auto locks = open(server.url("&operation_timeout=10s"));
  (void)locks.is_locked("key");
  server.kill();
  // The first attempts fail, and then there is a pause before the next: what comes in it waits for the connection.
  for (int i = 0; i < 6; ++i) {
    expect_error(ErrorCode::service_unavailable, [&] { (void)locks.is_locked("key"); });
  }
  // It may also be the one that finds out that nobody is there yet.
  std::atomic<bool> answered{false};
  std::thread waiting([&] { answered = eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }); });
  server.start();
  waiting.join();
  EXPECT_TRUE(answered);
}

TEST(RedisFailures, AServerThatHangsGivesNetworkTimeoutInTimeAndIsUsedAgain) {
  RedisServer server;
  auto locks = open(server.url("&operation_timeout=2s"));
  auto lease = locks.acquire("held");
  const auto connection = server.connections();
  server.pause();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const auto start = steady_clock::now();
      const auto error = error_of([&] { (void)locks.try_acquire("key " + std::to_string(i)); });
      const auto took = steady_clock::now() - start;
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::network_timeout);
      EXPECT_TRUE(error->in_doubt());
      EXPECT_GE(took, 2s);
      EXPECT_LT(took, 8s) << "long before the connection is given up";
    });
  }
  for (auto& thread : threads) thread.join();
  std::this_thread::sleep_for(2s);
  server.resume();
  EXPECT_TRUE(lease.extend(10s)) << "on the same connection, behind what nobody waits for any more";
  // The acquires that nobody waited for were carried out, and then taken back.
  EXPECT_TRUE(eventually([&] { return server.command({"KEYS", "syncguard:key *"}).empty(); }));
  EXPECT_EQ(server.command({"GET", "syncguard:fence:syncguard:key 0"}), "1") << "it did arrive";
  EXPECT_EQ(server.connections(), connection) << "it was never given up";
}

// What an acquire of a key throws that is stopped while the server says nothing, which ends it at once.
std::optional<LockError> error_of_stopped_acquire(Locks& locks, const Key& key) {
  std::stop_source stop;
  steady_clock::time_point stopped_at;
  std::thread stopper([&] {
    std::this_thread::sleep_for(100ms);
    stopped_at = steady_clock::now();
    stop.request_stop();
  });
  auto error = error_of([&] { (void)locks.acquire(key, {}, stop.get_token()); });
  const auto ended_at = steady_clock::now();
  stopper.join();
  EXPECT_LT(ended_at - stopped_at, 15s) << "nothing else ends it within 30 s";
  return error;
}

TEST(RedisFailures, AStopEndsACallOnASilentServerAtOnceAndLeavesNothingBehind) {
  RedisServer server;
  auto locks = open(server.url("&operation_timeout=30s"));
  // A script that the server does not know yet would be refused, and not sent again once its caller is gone.
  (void)locks.acquire("other");
  server.pause();
  std::string key;
  // In doubt where it was sent before it was stopped.
  EXPECT_TRUE(succeeds_once([&] {
    key += 'k';
    const auto error = error_of_stopped_acquire(locks, key);
    EXPECT_TRUE(error && error->code() == ErrorCode::aborted);
    return error && error->in_doubt();
  }));
  server.resume();
  EXPECT_TRUE(eventually([&] { return server.command({"EXISTS", "syncguard:fence:syncguard:" + key}) == "1"; }));
  EXPECT_TRUE(eventually([&] { return server.command({"EXISTS", "syncguard:" + key}) == "0"; }));
}

TEST(RedisFailures, AStopEndsConnectingAtOnce) {
  RedisServer server;
  server.pause();
  ClientOptions options;
  options.dispose_timeout = 30s;
  auto locks = open(server.url("&operation_timeout=30s&connect_timeout=30s"), options);
  const auto error = error_of_stopped_acquire(locks, "key");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::aborted);
  EXPECT_FALSE(error->in_doubt()) << "it was never sent";
  const auto closing = steady_clock::now();
  locks.close();
  EXPECT_LT(steady_clock::now() - closing, 15s);
}

TEST(RedisFailures, AConnectionOnWhichNothingComesBackIsGivenUp) {
  RedisServer server;
  auto locks = open(server.url("&operation_timeout=200ms"));
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }));
  const auto first = server.connections();
  ASSERT_NE(first, "");
  server.pause();
  const auto end = steady_clock::now() + 13s;
  while (steady_clock::now() < end) {
    const auto error = error_of([&] { (void)locks.is_locked("key"); });
    ASSERT_TRUE(error);
    EXPECT_TRUE(error->retryable()) << error->what();
  }
  server.resume();
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }));
  EXPECT_NE(server.connections(), first);
}

TEST(RedisFailures, ClosingDoesNotWaitForASilentServer) {
  RedisServer server;
  ClientOptions options;
  options.dispose_timeout = 300ms;
  auto locks = open(server.url("&operation_timeout=30s"), options);
  auto lease = locks.acquire("key");
  server.pause();
  const auto start = steady_clock::now();
  locks.close();
  EXPECT_LT(steady_clock::now() - start, 15s);
  EXPECT_TRUE(lease.lost().stop_requested());
}

TEST(RedisFailures, AClosedClientLeavesNothingOnItsCallersContext) {
  RedisServer server;
  asio::io_context context;
  auto locks = open_on(context.get_executor(), server.url(), patient_options());
  auto other = open_on(context.get_executor(), server.url(), patient_options());
  int done = 0;
  // One waits for the other, so that both connections are in use.
  locks.async_acquire("key", {}, [&](const std::exception_ptr& error, Lease lease) {
    EXPECT_FALSE(error);
    other.async_acquire("key", {.wait = {.timeout = 30s}},
                        [&](const std::exception_ptr& other_error, Lease other_lease) {
                          EXPECT_FALSE(other_error);
                          ++done;
                          (void)std::move(other_lease).detach();
                          locks.async_close([&](const std::exception_ptr&, bool) { ++done; });
                          other.async_close([&](const std::exception_ptr&, bool) { ++done; });
                        });
    auto held = std::make_shared<Lease>(std::move(lease));
    auto timer = std::make_shared<asio::steady_timer>(context, 100ms);
    timer->async_wait([timer, held](const asio::error_code&) { held->async_release([held](auto...) {}); });
  });
  EXPECT_GT(context.run_for(60s), 0U);
  EXPECT_EQ(done, 3);
  EXPECT_TRUE(context.stopped()) << "it has nothing left to do";
}

TEST(RedisFailures, WorksOnAnExecutorOfManyThreadsWhoseHandlersTakeTheirTime) {
  RedisServer server;
  asio::thread_pool pool(4);
  auto locks = open_on(pool.get_executor(), server.url(), patient_options());
  std::atomic<int> turns{0};
  Signal slow_began;
  Signal let_slow_go_on;
  locks.async_acquire("slow", {}, [&](const std::exception_ptr& error, Lease lease) {
    EXPECT_FALSE(error);
    slow_began.set();
    // What the application does with its lock holds up nothing of ours.
    EXPECT_TRUE(let_slow_go_on.wait_for(100s));
    (void)lease.detach();
  });
  ASSERT_TRUE(slow_began.wait_for(20s));
  for (int i = 0; i < 100; ++i) {
    std::promise<void> done;
    locks.async_acquire("key " + std::to_string(i % 7), {}, [&](const std::exception_ptr& error, Lease lease) {
      EXPECT_FALSE(error);
      auto held = std::make_shared<Lease>(std::move(lease));
      held->async_release([&, held](const std::exception_ptr& release_error, bool released) {
        EXPECT_FALSE(release_error);
        EXPECT_TRUE(released);
        ++turns;
        done.set_value();
      });
    });
    ASSERT_EQ(done.get_future().wait_for(20s), std::future_status::ready);
  }
  let_slow_go_on.set();
  std::promise<void> closed;
  locks.async_close([&](const std::exception_ptr&, bool) { closed.set_value(); });
  closed.get_future().wait();
  pool.join();
  EXPECT_EQ(turns, 100);
}

TEST(RedisFailures, AForkedChildThatGoesOnWithTheContextLeavesTheParentsConnectionAlone) {
  RedisServer server;
  asio::io_context context;
  auto locks = open_on(context.get_executor(), server.url(), patient_options());
  const auto locked = [&] {
    std::optional<bool> answer;
    locks.async_is_locked("key", [&](const std::exception_ptr& error, bool is_locked) {
      EXPECT_FALSE(error);
      answer = is_locked;
      context.stop();
    });
    context.restart();
    context.run_for(20s);
    return answer.value_or(true);
  };
  EXPECT_FALSE(locked());
  context.notify_fork(asio::io_context::fork_prepare);
  const pid_t child = fork();
  if (child == 0) {
    try {
      context.notify_fork(asio::io_context::fork_child);
      context.restart();
      context.run_for(1s);
      _exit(0);
    } catch (...) {
      _exit(1);
    }
  }
  context.notify_fork(asio::io_context::fork_parent);
  for (int i = 0; i < 200; ++i) ASSERT_FALSE(locked());
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(RedisFailures, SeveralConnectionsServeOneClient) {
  RedisServer server;
  auto locks = open_patiently(server.url("&connections=4"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 50; ++turn) EXPECT_TRUE(locks.acquire("key " + std::to_string(i % 4)));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GE(std::ranges::count(server.connections(), ' '), 4);
}

// For the thread sanitizer above all.
TEST(RedisFailures, ManyThreadsOfOneClientGetOverARestart) {
  RedisServer server({.durable = true});
  auto locks = open_patiently(server.url());
  std::atomic<bool> ending{false};
  std::atomic<int> turns{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i) {
    threads.emplace_back([&, i] {
      while (!ending) {
        try {
          // Some contend, some do not.
          auto lease = locks.acquire("key " + std::to_string(i % 24), {.ttl = 2s, .wait = {.timeout = 20s}});
          ++turns;
          if (i % 3 == 0) (void)lease.extend(2s);
          if (i % 5 == 0) (void)locks.is_locked("key " + std::to_string(i));
          (void)lease.release();
        } catch (const LockError& error) {
          EXPECT_TRUE(error.retryable() || error.code() == ErrorCode::acquisition_timeout) << error.what();
        }
      }
    });
  }
  for (int restart = 0; restart < 3; ++restart) {
    const int before = turns;
    EXPECT_TRUE(eventually([&] { return turns > before + 50; }));
    server.kill();
    std::this_thread::sleep_for(100ms);
    server.start();
  }
  const int before = turns;
  EXPECT_TRUE(eventually([&] { return turns > before + 50; })) << "everybody recovers";
  ending = true;
  for (auto& thread : threads) thread.join();
}

TEST(RedisFailures, ProcessesKilledAtAnyInstantBlockNobodyAndLoseNoCounter) {
  RedisServer server;
  const SharedEvidence evidence;
  survive_kills([&] { return open_patiently(server.url()); }, *evidence);
  EXPECT_GE(std::stoull(server.command({"GET", "syncguard:fence:syncguard:storm"})), evidence->newest_fence.load());
}

TEST(RedisFailures, AServerKilledAgainAndAgainLetsNobodyInTwiceAndLosesNoFence) {
  RedisServer server({.durable = true});
  const SharedEvidence evidence;
  survive_restarts(
      server.url(), *evidence, [&] { server.kill(); }, [&] { server.start(); });
  EXPECT_GE(std::stoull(server.command({"GET", "syncguard:fence:syncguard:storm"})), evidence->newest_fence.load());
}

}  // namespace
}  // namespace syncguard::testing
