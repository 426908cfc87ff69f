// Values of other applications at the names of turns and queues: with the prefixes X, X-turn and X-queue in one
// database, they are locks. Order may be lost, but the values stay as they are.

#include "backends/redis/scripts.hpp"
#include "servers/redis_server.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/is_granted.hpp"
#include "support/long_timeouts.hpp"

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;

struct RedisForeignValues : ::testing::Test {
  // Without the permission to use other keys than those of its own prefix, turns and queues, as docs/redis.md lists it.
  [[nodiscard]] Locks with_prefix(const std::string& prefix) const {
    return open_with_long_timeout(server.plain_url("?prefix=" + prefix));
  }
  std::string dump(const std::string& name) { return server.command({"DUMP", name}); }

  RedisServer server;
  Locks locks = with_prefix("app");
};

TEST_F(RedisForeignValues, LockAtTheNameOfATurnStaysHeld) {
  auto other = with_prefix("app-turn");
  auto held = other.acquire("job", {.ttl = 10min});
  const auto value = dump("app-turn:job");
  {
    auto lease = locks.acquire("job");
    EXPECT_EQ(dump("app-turn:job"), value) << "acquire";
    auto waiter = with_prefix("app");
    std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("job", patient)); });
    EXPECT_TRUE(eventually([&] { return server.command({"ZCARD", "app-queue:job"}) == "1"; }));
    EXPECT_TRUE(lease.release());
    waiting.join();
    EXPECT_EQ(dump("app-turn:job"), value) << "a release that wakes a waiter";
  }
  {
    const auto lease = locks.acquire("job");
    auto waiter = with_prefix("app");
    expect_error(ErrorCode::acquisition_timeout, [&] { (void)waiter.acquire("job", {.wait = {.timeout = 100ms}}); });
    EXPECT_TRUE(locks.admin().break_lock("job", lease.fence()));
  }
  EXPECT_EQ(dump("app-turn:job"), value) << "leaving and breaking";
  EXPECT_FALSE(is_granted(other.try_acquire("job")));
  EXPECT_TRUE(held.release());
}

// Its last moments look like a reservation.
TEST_F(RedisForeignValues, LockThatExpiresSoonIsNoReservation) {
  EXPECT_TRUE(succeeds_once([&] {
    server.command({"SET", "app-turn:job", R"({"lockId":"x","expiresAtMs":1})", "PX", "250"});
    const bool acquired = is_granted(locks.try_acquire("job"));
    return acquired && server.command({"EXISTS", "app-turn:job"}) == "1";
  }));
}

TEST_F(RedisForeignValues, WaitersPollIfALockHasTheNameOfTheirQueue) {
  auto other = with_prefix("app-queue");
  auto held = other.acquire("job", {.ttl = 10min});
  const auto value = dump("app-queue:job");
  auto lease = locks.acquire("job");
  auto waiter = with_prefix("app");
  std::thread waiting(
      [&] { EXPECT_TRUE(waiter.acquire("job", {.wait = {.timeout = 60s, .retry_delay = 20ms, .max_delay = 20ms}})); });
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(lease.release());
  waiting.join();
  EXPECT_EQ(dump("app-queue:job"), value);
  EXPECT_FALSE(is_granted(other.try_acquire("job")));
  EXPECT_TRUE(held.release());
}

TEST_F(RedisForeignValues, LockWhoseNameIsATurnOrQueueOfAnotherApplicationIsRefused) {
  server.command({"SET", "app-turn:job", LockId::generate().str(), "PX", "60000"});
  server.command({"ZADD", "app-queue:job", "1", "member"});
  expect_error(ErrorCode::internal, [&] { (void)with_prefix("app-turn").try_acquire("job"); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)with_prefix("app-queue").try_acquire("job"); });
}

// Every script that uses the names of turns and queues, with every type of value.
TEST_F(RedisForeignValues, NoScriptChangesThem) {
  const std::string lock = "app:job";
  const std::string turn = "app-turn:job";
  const std::string queue = "app-queue:job";
  const std::string id = LockId::generate().str();
  const std::string index = "app:id:" + id;
  const auto& scripts = redis::scripts();
  const auto hold = [&] {
    server.command({"SET", lock,
                    R"({"key":"job","lockId":")" + id +
                        R"(","fence":"000000000000007","acquiredAtMs":1,"expiresAtMs":900000000000000})"});
    server.command({"SET", index, lock});
  };
  const auto release = [&] { server.command({"DEL", lock, index}); };
  struct Case {
    const char* name;
    const redis::Script& script;
    std::function<void()> prepare;
    std::vector<std::string> arguments;
  };
  const std::string another = LockId::generate().str();
  const std::string its_place = "13600000000001";
  const std::vector<Case> cases = {
      {"acquire",
       scripts.acquire,
       release,
       {"5", lock, "app:fence:" + lock, turn, index, queue, id, "1000", "2000", R"("job")", "counter", "", "",
        "waits"}},
      {"repeated acquire",
       scripts.acquire,
       hold,
       {"5", lock, "app:fence:" + lock, turn, index, queue, id, "1000", "2000", R"("job")", "counter", "", "",
        "waits"}},
      {"release", scripts.release, hold, {"1", index, id, "app-queue:", "app-turn:", "app-wake:"}},
      {"break_lock",
       scripts.break_lock,
       hold,
       {"1", lock, "000000000000007", "app:id:", "app-queue:", "app-turn:", "app-wake:"}},
      {"join", scripts.join, hold, {"3", queue, turn, lock, another, "50", ""}},
      {"join at a place", scripts.join, release, {"3", queue, turn, lock, another, "50", its_place}},
      {"look at a held key", scripts.look, hold, {"3", lock, turn, queue, another, its_place}},
      {"look", scripts.look, release, {"3", lock, turn, queue, another, its_place}},
      {"leave", scripts.leave, release, {"3", queue, turn, lock, another, "app-wake:"}},
      {"inspect", scripts.inspect, hold, {"3", lock, "app:fence:" + lock, queue}},
      {"list", scripts.list, hold, {"1", index, "0", "app:*", "10", "app:", "app-queue:"}}};
  const std::vector<std::vector<std::string>> values = {{"SET", "{}"},
                                                        {"SET", "text"},
                                                        {"SET", "17"},
                                                        {"HSET", "field", "value"},
                                                        {"RPUSH", "element"},
                                                        {"SADD", "one"},
                                                        // Like a queue of another program.
                                                        {"ZADD", "1", "job 1", "2", "job 2"}};
  // A release wakes a waiter only if it listens.
  const std::string with_listeners =
      "local server = redis\n"
      "local redis = {call = server.call, sha1hex = server.sha1hex, pcall = function(name, ...)\n"
      "  return name == 'PUBLISH' and 1 or server.pcall(name, ...)\n"
      "end}\n";
  for (const auto& [name, script, prepare, arguments] : cases) {
    for (const auto& place : {turn, queue}) {
      for (const auto& value : values) {
        SCOPED_TRACE(std::string(name) + ": " + value.front() + " at " + place);
        server.command({"FLUSHALL"});
        prepare();
        if (place == turn) {
          server.command({"ZADD", queue, its_place, LockId::generate().str()});
          server.command({"PEXPIRE", queue, "3600000"});
        } else {
          // A turn that has lapsed.
          server.command({"SET", turn, LockId::generate().str() + ' ' + its_place + " 1700000000000", "PX", "60000"});
        }
        auto command = value;
        command.insert(command.begin() + 1, place);
        server.command(command);
        const auto before = dump(place);
        std::vector<std::string> call{"EVAL", with_listeners + script.text};
        call.insert(call.end(), arguments.begin(), arguments.end());
        server.command(call);
        EXPECT_EQ(dump(place), before);
        EXPECT_EQ(server.command({"PTTL", place}), "-1");
      }
    }
  }
}

}  // namespace
}  // namespace syncguard::testing
