// Waiting on Redis: the queue, and waiters that die, freeze, leave or lose their connection.

#include "backends/redis/scripts.hpp"
#include "servers/counting_proxy.hpp"
#include "servers/redis_server.hpp"
#include "support/counted_connections.hpp"
#include "support/eventually.hpp"
#include "support/fork_when_idle.hpp"
#include "support/long_timeouts.hpp"
#include "support/signal.hpp"
#include "support/waiting_processes.hpp"

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct RedisWaiting : public ::testing::Test {
  void expect_queue(int length) {
    EXPECT_TRUE(eventually([&] { return server.command({"ZCARD", "syncguard-queue:key"}) == std::to_string(length); }));
  }
  // How long after the start of action() the waiter gets the lock.
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
  Locks holder = open_with_long_timeout(server.url());
  Locks waiter = open_with_long_timeout(server.url());
};

TEST_F(RedisWaiting, KilledWaiterIsSkipped) {
  auto lease = holder.acquire("key");
  const pid_t child = fork_when_idle();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)open_with_long_timeout(server.url()).acquire("key", patient);
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

TEST_F(RedisWaiting, FrozenWaiterWithTurnOnlyDelaysOthers) {
  auto lease = holder.acquire("key");
  const pid_t child = fork_when_idle();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)open_with_long_timeout(server.url()).acquire("key", patient);
    pause();
  }
  expect_queue(1);
  kill(child, SIGSTOP);
  // Waits until the process has stopped, so that it cannot take its turn.
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(lease.release());
  // Its reservation lapses soon; then any client can acquire the lock.
  EXPECT_TRUE(waiter.acquire("key", {.wait = {.timeout = soon}}));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(RedisWaiting, FrozenWaitersDelayOthersAtMostHalfASecond) {
  expect_dead_waiters_cost_half_a_second({.url = server.url(),
                                          .clear =
                                              [&] {
                                                server.command({"DEL", "syncguard-queue:key", "syncguard-turn:key"});
                                              },
                                          .expect_waiters = [&](int count) { expect_queue(count); }},
                                         &WaitingProcesses::freeze);
}

TEST_F(RedisWaiting, HalfOpenConnectionDelaysOthersAtMostHalfASecond) {
  steady_clock::duration took{};
  const auto measure = [&] {
    server.command({"DEL", "syncguard-queue:key", "syncguard-turn:key"});
    CountingProxy proxy(server.port());
    auto unreachable = open_with_long_timeout(server.url_at(proxy.port()));
    std::stop_source stop;
    auto lease = holder.acquire("key", patient);
    std::thread cut_off([&] {
      try {
        (void)unreachable.acquire("key", patient, stop.get_token());
      } catch (const LockError&) {  // expected: the wait was stopped
      }
    });
    expect_queue(1);
    proxy.stall();
    steady_clock::time_point got;
    std::thread waiting([&] {
      const auto mine = waiter.acquire("key", patient);
      got = steady_clock::now();
    });
    expect_queue(2);
    const auto start = steady_clock::now();
    EXPECT_TRUE(lease.release());
    waiting.join();
    took = got - start;
    EXPECT_LT(took, soon);
    stop.request_stop();
    cut_off.join();
    return took < max_delay_by_dead_waiters;
  };
  EXPECT_TRUE(succeeds_once(measure)) << "the live waiter took " << std::chrono::duration<double>(took).count() << " s";
}

TEST_F(RedisWaiting, LeavingPassesTurnOnOnlyIfKeyIsFree) {
  auto lease = holder.acquire("key");
  std::stop_source stop;
  std::thread leaving([&] {
    try {
      (void)waiter.acquire("key", patient, stop.get_token());
    } catch (const LockError&) {  // expected: the wait was stopped
    }
  });
  expect_queue(1);
  // The state after a release, if another process takes the lock before the waiter whose turn it is.
  const auto oldest = server.command({"ZPOPMIN", "syncguard-queue:key"});
  auto turn = oldest + " 900000000000000";
  turn.replace(turn.find('\n'), 1, " ");
  server.command({"SET", "syncguard-turn:key", turn, "PX", "60000"});
  auto other = open_with_long_timeout(server.url());
  std::thread waiting([&] { EXPECT_TRUE(other.acquire("key", patient)); });
  expect_queue(1);
  const auto entry = [&] { return server.command({"ZRANGE", "syncguard-queue:key", "0", "-1", "WITHSCORES"}); };
  const auto before = entry();
  stop.request_stop();
  leaving.join();
  EXPECT_TRUE(eventually([&] { return server.command({"EXISTS", "syncguard-turn:key"}) == "0"; }));
  EXPECT_EQ(entry(), before);
  EXPECT_TRUE(lease.release());
  waiting.join();
}

// The last number of the script's reply: how many times as long the pause is.
TEST_F(RedisWaiting, WaitersLookLessOftenInVeryLongQueues) {
  const auto lease = holder.acquire("key");
  const auto crowd = [&] {
    const auto reply = server.command({"EVAL", redis::scripts().look.text, "3", "syncguard:key", "syncguard-turn:key",
                                       "syncguard-queue:key", LockId::generate().str(), "13600000000001"});
    return reply.substr(reply.rfind('\n') + 1);
  };
  const auto join_others = [&](int from, int to) {
    std::vector<std::string> command{"ZADD", "syncguard-queue:key"};
    for (int i = from; i < to; ++i) command.insert(command.end(), {"13600000000009", "other" + std::to_string(i)});
    server.command(command);
  };
  EXPECT_EQ(crowd(), "1");
  join_others(0, 1022);
  EXPECT_EQ(crowd(), "1") << "1024 waiters";
  EXPECT_EQ(crowd(), "2") << "1025 waiters";
  server.command({"ACL", "SETUSER", "default", "-zcard"});
  EXPECT_EQ(crowd(), "1") << "this right is optional";
}

TEST_F(RedisWaiting, RemovedLiveWaiterKeepsItsPlace) {
  auto lease = holder.acquire("key");
  std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient)); });
  expect_queue(1);
  const auto place = [&] { return server.command({"ZRANGE", "syncguard-queue:key", "0", "-1", "WITHSCORES"}); };
  const auto before = place();
  server.command({"DEL", "syncguard-queue:key"});
  expect_queue(1);
  EXPECT_EQ(place(), before);
  EXPECT_TRUE(lease.release());
  waiting.join();
}

TEST_F(RedisWaiting, WaitersThatJoinWithinOneMillisecondKeepTheirOrder) {
  const auto join = redis::scripts().join.text;
  std::string joined;
  for (const char* const id : {"z", "a", "y", "b", "x", "c", "w", "d", "v", "e", "u", "f", "t", "g", "s", "h"}) {
    server.command({"EVAL", join, "3", "queue", "turn", "lock", id, *id > 'm' ? "300" : "50", ""});
    joined += joined.empty() ? id : std::string("\n") + id;
  }
  EXPECT_EQ(server.command({"ZRANGE", "queue", "0", "-1"}), joined);
}

// In its last digits, see lua/reserve.lua.
TEST_F(RedisWaiting, PlaceCarriesReservation) {
  const auto reservation_of = [&](const std::string& queue) {
    const auto entry = server.command({"ZRANGE", queue, "0", "0", "WITHSCORES"});
    return std::stoll(entry.substr(entry.find('\n') + 1)) % 8 * 50;
  };
  const auto after_join = [&](const std::string& reservation) {
    server.command({"DEL", "queue"});
    server.command({"EVAL", redis::scripts().join.text, "3", "queue", "turn", "lock", "waiter", reservation, ""});
    return reservation_of("queue");
  };
  EXPECT_EQ(after_join("240"), 250) << "must be rounded up";
  EXPECT_EQ(after_join("100"), 100);
  EXPECT_EQ(after_join("0"), 50);
  EXPECT_EQ(after_join("1000"), 300);

  const CountingProxy proxy(server.port(), 40ms);
  auto far = open_with_long_timeout(server.url_at(proxy.port()));
  auto lease = holder.acquire("key");
  std::thread waiting([&] { EXPECT_TRUE(far.acquire("key", patient)); });
  expect_queue(1);
  const auto reservation = reservation_of("syncguard-queue:key");
  EXPECT_GE(reservation, 240);
  EXPECT_LE(reservation, 300);
  EXPECT_TRUE(lease.release());
  waiting.join();
}

TEST_F(RedisWaiting, ChannelsShowNoLockId) {
  auto lease = holder.acquire("key");
  LockId id = LockId::generate();
  const auto took = time_until_woken([&] {
    id = LockId(server.command({"ZRANGE", "syncguard-queue:key", "0", "0"}));
    const auto channels = server.command({"PUBSUB", "CHANNELS", "*"});
    EXPECT_NE(channels.find("syncguard-wake:"), std::string::npos);
    EXPECT_EQ(channels.find(id.view()), std::string::npos);
    EXPECT_TRUE(lease.release());
  });
  EXPECT_LT(took, soon);
}

TEST_F(RedisWaiting, LostSubscriptionIsRenewed) {
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

// Of all waiters of a client, which keep their places.
TEST_F(RedisWaiting, LostSubscriptionsAreRenewed) {
  constexpr int count = 5;
  std::vector<Lease> leases;
  std::vector<std::thread> waiting;
  const auto key_of = [](int i) { return "key" + std::to_string(i); };
  const auto places = [&] {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += server.command({"ZRANGE", "syncguard-queue:" + key_of(i), "0", "-1", "WITHSCORES"}) + ' ';
    }
    return text;
  };
  const auto channels = [&] {
    const auto names = server.command({"PUBSUB", "CHANNELS", "syncguard-wake:*"});
    return names.empty() ? 0 : std::ranges::count(names, '\n') + 1;
  };
  for (int i = 0; i < count; ++i) {
    leases.push_back(holder.acquire(key_of(i)));
    waiting.emplace_back([&, i] { EXPECT_TRUE(waiter.acquire(key_of(i), patient)); });
    EXPECT_TRUE(eventually([&] { return server.command({"ZCARD", "syncguard-queue:" + key_of(i)}) == "1"; }));
  }
  EXPECT_TRUE(eventually([&] { return channels() == count; }));
  const auto before = places();
  server.command({"CLIENT", "KILL", "TYPE", "pubsub"});
  EXPECT_TRUE(eventually([&] { return channels() == count; }));
  EXPECT_EQ(places(), before);
  for (auto& lease : leases) EXPECT_TRUE(lease.release());
  for (auto& thread : waiting) thread.join();
  EXPECT_TRUE(eventually([&] { return channels() == 0; }));
}

// For example those of an older line in an ACL file.
TEST_F(RedisWaiting, WaitersPollWithoutPermissionForQueues) {
  for (const char* const command : {"-zrange", "-zremrangebyrank", "-zadd", "-zrem"}) {
    server.command({"ACL", "SETUSER", RedisServer::user, command});
    auto lease = holder.acquire("key");
    std::thread waiting([&] {
      EXPECT_TRUE(waiter.acquire("key", {.wait = {.timeout = 60s, .retry_delay = 20ms, .max_delay = 20ms}}));
    });
    std::this_thread::sleep_for(50ms);
    EXPECT_TRUE(lease.release()) << command;
    waiting.join();
    server.command({"ACL", "SETUSER", RedisServer::user, '+' + std::string(command + 1)});
  }
}

TEST_F(RedisWaiting, LostQueueCostsOnlyTime) {
  auto lease = holder.acquire("key", {.ttl = 4s});
  const auto took = time_until_woken([&] {
    server.command({"DEL", "syncguard-queue:key"});
    EXPECT_TRUE(lease.release());
  });
  EXPECT_LT(took, 5s + soon) << "the waiter must try again when the holder's ttl ends";
}

TEST_F(RedisWaiting, ReleaseByTypeScriptWakesWaiterIfServerNotifies) {
  server.command({"CONFIG", "SET", "notify-keyspace-events", "KEA"});
  const auto lease = holder.acquire("key");
  const auto took = time_until_woken([&] {
    server.command({"DEL", "syncguard:key", "syncguard:id:" + lease.id().str()});
  });
  EXPECT_LT(took, soon);
}

TEST_F(RedisWaiting, OwnReleaseWakesOneWaiterIfServerNotifies) {
  server.command({"CONFIG", "SET", "notify-keyspace-events", "KEA"});
  auto third = open_with_long_timeout(server.url());
  const auto calls = [&] {
    const auto stats = server.command({"INFO", "commandstats"});
    const std::string name = "cmdstat_evalsha:calls=";
    return std::stoi(stats.substr(stats.find(name) + name.size()));
  };
  int fewest = 1000;
  // On a busy machine, the waiter whose turn it is may be late, and then others try as well, but not every time.
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
      << "expected two calls, the release and the acquire of the next waiter, but got " << fewest;
}

TEST_F(RedisWaiting, ClientThatIgnoresQueueCostsOnlyTime) {
  auto lease = holder.acquire("key");
  // A client that ignores the queue acquires the lock between the release and the turn.
  const auto id = LockId::generate().str();
  const auto took = time_until_woken([&] {
    const auto waiting_id = server.command({"ZRANGE", "syncguard-queue:key", "0", "0"});
    const auto now =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    const std::string acquire_without_queueing = R"(
        redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1], 'PX', 1500)
        local oldest = redis.call('ZPOPMIN', KEYS[2])
        redis.call('SET', KEYS[3], string.format('%s %.0f %.0f', ARGV[2], oldest[2], ARGV[4] + 50), 'PX', 60000)
        return redis.call('PUBLISH', ARGV[3] .. redis.sha1hex(ARGV[2]), ''))";
    server.command({"EVAL", acquire_without_queueing, "3", "syncguard:key", "syncguard-queue:key", "syncguard-turn:key",
                    R"({"key":"key","lockId":")" + id + R"(","fence":"000000000000007","acquiredAtMs":)" +
                        std::to_string(now) + R"(,"expiresAtMs":)" + std::to_string(now + 500) + "}",
                    waiting_id, "syncguard-wake:", std::to_string(now)});
  });
  EXPECT_GT(took, 1s) << "the other client's lock must be respected";
  EXPECT_LT(took, soon);
  (void)lease.release();
}

TEST_F(RedisWaiting, MetricsCountConnections) {
  expect_connections_are_counted(server.url(), [&] { expect_queue(1); });
}

TEST_F(RedisWaiting, NothingIsLeftAfterLastWaiter) {
  auto lease = holder.acquire("key");
  (void)time_until_woken([&] { EXPECT_TRUE(lease.release()); });
  std::stop_source stop;
  lease = holder.acquire("key");
  std::thread stopped([&] {
    try {
      (void)waiter.acquire("key", patient, stop.get_token());
    } catch (const LockError&) {  // expected: the wait was stopped
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
