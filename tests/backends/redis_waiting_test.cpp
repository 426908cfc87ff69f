// Waiting on Redis: the queue, and everything that can happen to those who stand in it.

#include "eventually.hpp"
#include "patience.hpp"
#include "servers/redis_server.hpp"
#include "signal.hpp"

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <thread>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct RedisWaiting : public ::testing::Test {
  void expect_queue(int length) {
    EXPECT_TRUE(eventually([&] { return server.command({"ZCARD", "syncguard-queue:key"}) == std::to_string(length); }));
  }
  // How long until the waiter got the lock.
  template <typename Action>
  steady_clock::duration time_until_woken(Action action) {
    steady_clock::time_point got;
    std::thread waiting([&] {
      const auto lease = waiter.acquire("key", patient);
      got = steady_clock::now();
    });
    expect_queue(1);
    const auto start = steady_clock::now();
    action();
    waiting.join();
    return got - start;
  }

  RedisServer server;
  Locks holder = open_patiently(server.url());
  Locks waiter = open_patiently(server.url());
};

TEST_F(RedisWaiting, AWaiterKilledInTheQueueIsSkipped) {
  auto lease = holder.acquire("key");
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)open_patiently(server.url()).acquire("key", patient);
    _exit(0);
  }
  expect_queue(1);
  std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient)); });
  expect_queue(2);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(eventually([&] {
    return server.command({"PUBSUB", "CHANNELS", "syncguard-wake:*"}).find('\n') == std::string::npos;
  }));
  const auto start = steady_clock::now();
  EXPECT_TRUE(lease.release());
  waiting.join();
  EXPECT_LT(steady_clock::now() - start, soon);
}

TEST_F(RedisWaiting, AWaiterThatIsStoppedWithItsTurnDelaysTheOthersOnly) {
  auto lease = holder.acquire("key");
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)open_patiently(server.url()).acquire("key", patient);
    pause();
  }
  expect_queue(1);
  kill(child, SIGSTOP);
  // Until it has stopped: it must not take its turn first.
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(lease.release());
  // It has its turn for a moment, then it is anybody's.
  EXPECT_TRUE(waiter.acquire("key", {.wait = {.timeout = soon}}));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(RedisWaiting, ALostSubscriptionIsRenewed) {
  auto lease = holder.acquire("key");
  const auto took = time_until_woken([&] {
    const auto subscriber = [&] {
      const auto clients = server.command({"CLIENT", "LIST", "TYPE", "pubsub"});
      return clients.substr(0, clients.find(' '));
    };
    const auto killed = subscriber();
    server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
    EXPECT_TRUE(eventually([&] { return subscriber().starts_with("id=") && subscriber() != killed; }));
    EXPECT_TRUE(eventually([&] { return !server.command({"PUBSUB", "CHANNELS", "syncguard-wake:*"}).empty(); }));
    EXPECT_TRUE(lease.release());
  });
  EXPECT_LT(took, soon);
}

TEST_F(RedisWaiting, ALostQueueCostsTimeOnly) {
  auto lease = holder.acquire("key", {.ttl = 4s});
  const auto took = time_until_woken([&] {
    server.command({"DEL", "syncguard-queue:key"});
    EXPECT_TRUE(lease.release());
  });
  EXPECT_LT(took, 5s + soon) << "when the holder's time is over at the latest";
}

TEST_F(RedisWaiting, AReleaseByAnotherLibraryWakesWhereTheServerReportsIt) {
  server.command({"CONFIG", "SET", "notify-keyspace-events", "KEA"});
  const auto lease = holder.acquire("key");
  const auto took = time_until_woken([&] {
    server.command({"DEL", "syncguard:key", "syncguard:id:" + lease.id().str()});
  });
  EXPECT_LT(took, soon);
}

TEST_F(RedisWaiting, AReleaseOfOursWakesOneWaiterOnlyWhereTheServerReportsKeys) {
  server.command({"CONFIG", "SET", "notify-keyspace-events", "KEA"});
  auto third = open_patiently(server.url());
  const auto calls = [&] {
    const auto stats = server.command({"INFO", "commandstats"});
    const std::string name = "cmdstat_evalsha:calls=";
    return std::stoi(stats.substr(stats.find(name) + name.size()));
  };
  int fewest = 1000;
  // On a busy machine the one whose turn it is may be late, and then others may try. But not every time.
  const auto only_one_tried = [&] {
    auto lease = holder.acquire("key");
    Signal first_has_it;
    Signal counted;
    std::thread first([&] {
      const auto mine = waiter.acquire("key", patient);
      first_has_it.set();
      counted.wait_for(60s);
    });
    expect_queue(1);
    std::thread second([&] { EXPECT_TRUE(third.acquire("key", patient)); });
    expect_queue(2);
    const int before = calls();
    EXPECT_TRUE(lease.release());
    EXPECT_TRUE(first_has_it.wait_for(60s));
    std::this_thread::sleep_for(80ms);
    fewest = std::min(fewest, calls() - before);
    counted.set();
    first.join();
    second.join();
    return fewest == 2;
  };
  EXPECT_TRUE(succeeds_once(only_one_tried))
      << fewest << " instead of the release, and the acquire of the one whose turn it was";
}

TEST_F(RedisWaiting, SomebodyWhoIgnoresTheQueueCostsTimeOnly) {
  auto lease = holder.acquire("key");
  // Takes the lock between the release and the turn, as a process that knows nothing of queues may.
  const auto id = LockId::generate().str();
  const auto took = time_until_woken([&] {
    const auto waiting_id = server.command({"ZRANGE", "syncguard-queue:key", "0", "0"});
    const auto now =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    const std::string barge_in = R"(
        redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1], 'PX', 1500)
        redis.call('ZPOPMIN', KEYS[2]) redis.call('SET', KEYS[3], ARGV[2], 'PX', 50)
        return redis.call('PUBLISH', ARGV[3], ''))";
    server.command({"EVAL", barge_in, "3", "syncguard:key", "syncguard-queue:key", "syncguard-turn:key",
                    R"({"key":"key","lockId":")" + id + R"(","fence":"000000000000007","acquiredAtMs":)" +
                        std::to_string(now) + R"(,"expiresAtMs":)" + std::to_string(now + 500) + "}",
                    waiting_id, "syncguard-wake:" + waiting_id});
  });
  EXPECT_GT(took, 1s) << "somebody else had it";
  EXPECT_LT(took, soon);
  (void)lease.release();
}

TEST_F(RedisWaiting, NothingIsLeftBehindWhenNobodyWaitsAnyMore) {
  auto lease = holder.acquire("key");
  (void)time_until_woken([&] { EXPECT_TRUE(lease.release()); });
  std::stop_source stop;
  lease = holder.acquire("key");
  std::thread stopped([&] {
    try {
      (void)waiter.acquire("key", patient, stop.get_token());
    } catch (const LockError&) {  // as it should
    }
  });
  expect_queue(1);
  stop.request_stop();
  stopped.join();
  expect_queue(0);
  EXPECT_TRUE(lease.release());
  EXPECT_TRUE(eventually([&] { return server.command({"KEYS", "syncguard-*"}).empty(); }));
  EXPECT_TRUE(eventually([&] { return server.command({"PUBSUB", "CHANNELS", "*"}).empty(); }));
}

}  // namespace
}  // namespace syncguard::testing
