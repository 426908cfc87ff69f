// Redis servers that crash, hang, restart or lose their scripts.

#include "servers/counting_proxy.hpp"
#include "servers/fake_redis.hpp"
#include "servers/redis_server.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/fork_when_idle.hpp"
#include "support/long_timeouts.hpp"
#include "support/signal.hpp"
#include "support/storm.hpp"
#include "support/tcp_connections.hpp"
#include "support/watch_through_restart.hpp"

#include <syncguard/async.hpp>
#include <syncguard/backend.hpp>
#include <syncguard/redis.hpp>
#include <syncguard/syncguard.hpp>

#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_future.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

TEST(RedisFailures, ScriptsAreReloadedAfterFlush) {
  RedisServer server;
  auto locks = open_with_long_timeout(server.url());
  auto lease = locks.acquire("key");
  server.command({"SCRIPT", "FLUSH"});
  EXPECT_TRUE(lease.extend(10s));
  server.command({"SCRIPT", "FLUSH"});
  EXPECT_TRUE(lease.release());
}

TEST(RedisFailures, NextOperationReconnectsToRestartedServer) {
  RedisServer server({.durable = true});
  auto locks = open_with_long_timeout(server.url());
  const auto lease = locks.acquire("key", {.ttl = 10min});
  server.kill();
  const auto down = error_of([&] { (void)locks.is_locked("key"); });
  ASSERT_TRUE(down);
  EXPECT_EQ(down->code(), ErrorCode::service_unavailable);
  server.start();
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }));
  EXPECT_TRUE(locks.is_locked("key"));
  EXPECT_TRUE(locks.admin().owns(lease.id()));
}

TEST(RedisFailures, WatchContinuesAfterRestart) {
  RedisServer server;
  expect_watch_continues_after_restart(
      server.url(), [&] { server.kill(); }, [&] { server.start(); });
}

TEST(RedisFailures, OperationWaitingForConnectionUsesNewOne) {
  RedisServer server;
  auto locks = open(server.url("&operation_timeout=10s"));
  (void)locks.is_locked("key");
  server.kill();
  // After some failed attempts, the client pauses before it connects again. Operations during the pause wait for the
  // new connection.
  for (int i = 0; i < 6; ++i) {
    expect_error(ErrorCode::service_unavailable, [&] { (void)locks.is_locked("key"); });
  }
  // The operation may still fail if the client connects before the server has started.
  std::atomic<bool> answered{false};
  std::thread waiting([&] { answered = eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }); });
  server.start();
  waiting.join();
  EXPECT_TRUE(answered);
}

TEST(RedisFailures, HungServerGivesNetworkTimeoutAndIsUsedAgain) {
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
      EXPECT_LT(took, 8s) << "the operation must end before the connection is given up";
    });
  }
  for (auto& thread : threads) thread.join();
  std::this_thread::sleep_for(2s);
  server.resume();
  EXPECT_TRUE(lease.extend(10s)) << "the connection must still work after the abandoned requests";
  // The server executed the abandoned acquires, and the client released them.
  EXPECT_TRUE(eventually([&] { return server.command({"KEYS", "syncguard:key *"}).empty(); }));
  EXPECT_EQ(server.command({"EXISTS", "syncguard:fence:syncguard:key 0"}), "1")
      << "the abandoned acquire must have reached the server";
  EXPECT_EQ(server.connections(), connection) << "the connection must be kept";
}

// Stops an acquire while the server does not reply, expects it to end soon, and returns its error.
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
  EXPECT_LT(ended_at - stopped_at, 15s) << "the stop must end the call; its timeout is 30 s";
  return error;
}

TEST(RedisFailures, StopEndsCallOnSilentServerAndLeavesNothing) {
  RedisServer server;
  auto locks = open(server.url("&operation_timeout=30s"));
  // Loads the script: the server rejects an unknown script, and the client does not send it again for a stopped call.
  (void)locks.acquire("other");
  server.pause();
  std::string key;
  // In doubt only if the request was sent before the stop.
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

TEST(RedisFailures, StopEndsConnecting) {
  RedisServer server;
  server.pause();
  ClientOptions options;
  options.dispose_timeout = 30s;
  auto locks = open(server.url("&operation_timeout=30s&connect_timeout=30s"), options);
  const auto error = error_of_stopped_acquire(locks, "key");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::aborted);
  EXPECT_FALSE(error->in_doubt()) << "the acquire was never sent";
  const auto closing = steady_clock::now();
  locks.close();
  EXPECT_LT(steady_clock::now() - closing, 15s);
}

TEST(RedisFailures, SilentConnectionIsReplaced) {
  RedisServer server;
  auto locks = open(server.url("&operation_timeout=200ms&silence_timeout=1s"));
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }));
  const auto first = server.connections();
  ASSERT_NE(first, "");
  server.pause();
  const auto end = steady_clock::now() + 3s;
  while (steady_clock::now() < end) {
    const auto error = error_of([&] { (void)locks.is_locked("key"); });
    ASSERT_TRUE(error);
    EXPECT_TRUE(error->retryable()) << error->what();
  }
  server.resume();
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }));
  EXPECT_NE(server.connections(), first);
}

int connections_received(RedisServer& server) {
  const auto stats = server.command({"INFO", "stats"});
  const std::string name = "total_connections_received:";
  return std::stoi(stats.substr(stats.find(name) + name.size()));
}

TEST(RedisFailures, TcpKeepAliveIsOn) {
  const RedisServer server;
  const CountingProxy proxy(server.port());
  auto locks = open_with_long_timeout(server.url_at(proxy.port()));
  EXPECT_FALSE(locks.is_locked("key"));
  const auto found = tcp_connections_to(proxy.port());
  EXPECT_GE(found.size(), 1U);
  for (const auto& connection : found) {
    EXPECT_TRUE(connection.keep_alive);
    EXPECT_EQ(connection.idle, 30s);
    EXPECT_GT(connection.user_timeout, 0s);
  }
}

TEST(RedisFailures, PasswordIsRequestedForEachConnection) {
  RedisServer server;
  std::mutex mutex;
  std::string password = RedisServer::password;
  int asked = 0;
  RedisOptions options;
  options.port = static_cast<std::uint16_t>(server.port());
  options.username = RedisServer::user;
  options.client_name = "test";
  options.password_callback = [&, test = std::this_thread::get_id()] {
    EXPECT_NE(std::this_thread::get_id(), test);
    const std::lock_guard lock(mutex);
    ++asked;
    return password;
  };
  auto locks = Locks(make_redis_backend(options), with_long_timeout());
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_FALSE(locks.is_locked("key"));
  {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(asked, 1);
    password = "rotated";
  }
  server.command({"ACL", "SETUSER", RedisServer::user, "resetpass", ">rotated"});
  server.command({"CLIENT", "KILL", "TYPE", "normal"});
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }));
  const std::lock_guard lock(mutex);
  EXPECT_EQ(asked, 2);
}

TEST(RedisFailures, PasswordCommandInUrlAuthenticates) {
  RedisServer server;
  const std::string at = "redis://locker@127.0.0.1:" + std::to_string(server.port());
  EXPECT_FALSE(open_with_long_timeout(at + "?password_command=echo%20%27p%40ss%3Aw%2Frd%3F%27").is_locked("key"));
  auto failing = open_with_long_timeout(at + "?password_command=exit%203");
  expect_error(ErrorCode::service_unavailable, [&] { (void)failing.is_locked("key"); });
}

TEST(RedisFailures, ReadOnlyServerIsReconnectedWithBackoff) {
  RedisServer server;
  auto locks = open_with_long_timeout(server.url());
  (void)locks.is_locked("key");
  // A replica of an unreachable master.
  server.command({"REPLICAOF", "127.0.0.1", "1"});
  const int before = connections_received(server);
  const auto end = steady_clock::now() + 2s;
  while (steady_clock::now() < end) {
    // Reads succeed on a replica, but must not reset the backoff.
    (void)locks.is_locked("key");
    expect_error(ErrorCode::service_unavailable, [&] { (void)locks.try_acquire("key"); });
  }
  EXPECT_LT(connections_received(server) - before, 30);
  server.command({"REPLICAOF", "NO", "ONE"});
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.try_acquire("key"); }); }));
}

TEST(RedisFailures, JoinRefusedUnderOverloadLeavesTheConnectionOpen) {
  RedisServer server;
  RedisOptions options;
  options.port = static_cast<std::uint16_t>(server.port());
  options.queue = 2;
  // Declared before the backend, whose connections use it.
  asio::thread_pool threads(1);
  const auto backend = make_redis_backend(options);
  const Key key("key");
  const CallLimits patiently{{}, steady_clock::now() + 60s};
  const auto ask = [&] { return asio::co_spawn(threads, backend->is_locked(key, patiently), asio::use_future); };
  (void)ask().get();
  server.pause();
  auto first = ask();
  auto second = ask();
  const AcquireRequest waiter{.key = key, .lock_id = LockId::generate(), .ttl = 30s};
  const CallLimits briefly{{}, steady_clock::now() + 500ms};
  const std::function<void()> nothing = [] {};
  auto join = asio::co_spawn(threads, backend->join(waiter, nothing, briefly), asio::use_future);
  EXPECT_TRUE(error_of([&] { (void)join.get(); }));
  server.resume();
  EXPECT_FALSE(error_of([&] { (void)first.get(); })) << "the rejected join must not affect pending requests";
  EXPECT_FALSE(error_of([&] { (void)second.get(); }));
  asio::co_spawn(threads, backend->close(patiently), asio::use_future).get();
  threads.join();
}

TEST(RedisFailures, ErrorNamesServerWithoutTls) {
  RedisServer silent;
  const auto port = std::to_string(silent.port());
  auto locks = open("rediss://127.0.0.1:" + port + "?connect_timeout=1s&operation_timeout=1s");
  const auto timeout = error_of([&] { (void)locks.is_locked("key"); });
  ASSERT_TRUE(timeout);
  EXPECT_EQ(timeout->code(), ErrorCode::network_timeout);
  EXPECT_THAT(timeout->what(), ::testing::HasSubstr("TLS on this port"));

  // Most servers of other kinds reply with plain text.
  const FakeRedis answering({});
  auto rejected_reply = open("rediss" + answering.url().substr(std::string("redis").size()), with_long_timeout());
  const auto refusal = error_of([&] { (void)rejected_reply.is_locked("key"); });
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(refusal->what(), ::testing::HasSubstr("does not use TLS on this port"));
}

TEST(RedisFailures, CloseDoesNotWaitForSilentServer) {
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

TEST(RedisFailures, ClosedClientLeavesNothingOnCallersContext) {
  RedisServer server;
  asio::io_context context;
  auto locks = open_on(context.get_executor(), server.url(), with_long_timeout());
  auto other = open_on(context.get_executor(), server.url(), with_long_timeout());
  int done = 0;
  // The second client waits for the lock of the first, so that both kinds of connections are in use.
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
  EXPECT_TRUE(context.stopped()) << "no work must be left on the context";
}

TEST(RedisFailures, WorksOnMultithreadedExecutorWithSlowHandlers) {
  RedisServer server;
  asio::thread_pool pool(4);
  auto locks = open_on(pool.get_executor(), server.url(), with_long_timeout());
  std::atomic<int> turns{0};
  Signal slow_began;
  Signal resume_slow_call;
  locks.async_acquire("slow", {}, [&](const std::exception_ptr& error, Lease lease) {
    EXPECT_FALSE(error);
    slow_began.set();
    // A slow handler of the application must not delay other operations.
    EXPECT_TRUE(resume_slow_call.wait_for(100s));
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
  resume_slow_call.set();
  std::promise<void> closed;
  locks.async_close([&](const std::exception_ptr&, bool) { closed.set_value(); });
  closed.get_future().wait();
  pool.join();
  EXPECT_EQ(turns, 100);
}

TEST(RedisFailures, ForkedChildThatRunsContextDoesNotAffectParentsConnection) {
  RedisServer server;
  asio::io_context context;
  auto locks = open_on(context.get_executor(), server.url(), with_long_timeout());
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
  const pid_t child = fork_when_idle();
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
  auto locks = open_with_long_timeout(server.url("&connections=4"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 50; ++turn) EXPECT_TRUE(locks.acquire("key " + std::to_string(i % 4)));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GE(std::ranges::count(server.connections(), ' '), 4);
}

// Mainly for the thread sanitizer.
TEST(RedisFailures, ManyThreadsOfOneClientRecoverAfterRestart) {
  RedisServer server({.durable = true});
  auto locks = open_with_long_timeout(server.url());
  std::atomic<bool> ending{false};
  std::atomic<int> turns{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i) {
    threads.emplace_back([&, i] {
      while (!ending) {
        try {
          // Some threads share a key with another one.
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
  EXPECT_TRUE(eventually([&] { return turns > before + 50; })) << "the threads must recover";
  ending = true;
  for (auto& thread : threads) thread.join();
}

TEST(RedisFailures, ProcessesKilledAtAnyTimeBlockNoOtherAndLoseNoCounter) {
  RedisServer server;
  const SharedEvidence evidence;
  survive_kills([&] { return open_with_long_timeout(server.url()); }, *evidence);
  EXPECT_GE(std::stoull(server.command({"GET", "syncguard:fence:syncguard:storm"})), evidence->newest_fence.load());
}

TEST(RedisFailures, RepeatedlyKilledServerKeepsExclusionAndFences) {
  RedisServer server({.durable = true});
  const SharedEvidence evidence;
  survive_restarts(
      server.url(), *evidence, [&] { server.kill(); }, [&] { server.start(); });
  EXPECT_GE(std::stoull(server.command({"GET", "syncguard:fence:syncguard:storm"})), evidence->newest_fence.load());
}

}  // namespace
}  // namespace syncguard::testing
