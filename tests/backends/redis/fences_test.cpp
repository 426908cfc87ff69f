// Fences on a Redis that loses its newest writes.

#include "scripts_at_time.hpp"
#include "servers/redis_server.hpp"
#include "support/eventually.hpp"
#include "support/long_timeouts.hpp"

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* counter = "syncguard:fence:syncguard:key";

struct RedisFences : public ::testing::Test {
  // Without the delay that lets several replicas share one synchronization.
  RedisServer server{RedisServer::Options{.configuration = {"repl-diskless-sync-delay 0"}}};

  // The newest of five fences of one key.
  static Fence grant_some(const RedisServer& server) {
    auto locks = open_with_long_timeout(server.url());
    Fence newest;
    for (int i = 0; i < 5; ++i) {
      const auto fence = locks.acquire("key").fence();
      EXPECT_GT(fence, newest);
      newest = fence;
    }
    // Several grants within 100 us put the counter ahead of the clock.
    std::this_thread::sleep_for(10ms);
    return newest;
  }
};

TEST_F(RedisFences, GrowAfterFailoverToReplicaThatWasCutOff) {
  RedisServer replica;
  replica.command({"REPLICAOF", "127.0.0.1", std::to_string(server.port())});
  const auto replicated = grant_some(server);
  ASSERT_TRUE(eventually([&] { return replica.command({"GET", counter}) == server.command({"GET", counter}); }));
  // Nothing listens at port 1: the replica keeps its data and receives no more.
  replica.command({"REPLICAOF", "127.0.0.1", "1"});
  const auto newest = grant_some(server);
  EXPECT_GT(newest, replicated);
  ASSERT_EQ(replica.command({"GET", counter}), std::to_string(replicated.value()));

  server.kill();
  replica.command({"REPLICAOF", "NO", "ONE"});
  const auto after_failover = grant_some(replica);
  EXPECT_GT(after_failover, newest);

  // Failback to a server that knows nothing of the grants in between.
  server.start();
  EXPECT_GT(grant_some(server), after_failover);
}

TEST_F(RedisFences, GrowAfterFlush) {
  const auto newest = grant_some(server);
  server.command({"FLUSHALL"});
  EXPECT_GT(open_with_long_timeout(server.url()).acquire("key").fence(), newest);
}

TEST_F(RedisFences, GrowAfterCounterWasDeleted) {
  const auto newest = grant_some(server);
  server.command({"DEL", counter});
  EXPECT_GT(open_with_long_timeout(server.url()).acquire("key").fence(), newest);
}

TEST_F(RedisFences, GrowAfterRestartFromOldSnapshot) {
  grant_some(server);
  server.command({"SAVE"});
  const auto before_reload = grant_some(server);
  server.command({"DEBUG", "RELOAD", "NOSAVE"});
  ASSERT_LT(std::stoull(server.command({"GET", counter})), before_reload.value());
  const auto before_restart = grant_some(server);
  EXPECT_GT(before_restart, before_reload);
  server.kill();
  server.start();
  ASSERT_LT(std::stoull(server.command({"GET", counter})), before_reload.value());
  EXPECT_GT(grant_some(server), before_restart);
}

TEST_F(RedisFences, GrowAfterRestartWithoutPersistence) {
  const auto newest = grant_some(server);
  server.kill();
  server.start();
  ASSERT_EQ(server.command({"DBSIZE"}), "0");
  EXPECT_GT(grant_some(server), newest);
}

// The option for stores whose counters are never lost, and for fences that begin at 1.
TEST_F(RedisFences, CountOnRequest) {
  auto locks = open_with_long_timeout(server.url("&fences=counter"));
  EXPECT_EQ(locks.acquire("key").fence(), Fence(1));
  EXPECT_EQ(locks.acquire("key").fence(), Fence(2));
  server.command({"DEL", counter});
  EXPECT_EQ(locks.acquire("key").fence(), Fence(1));
}

// The TypeScript library increments the counter. It goes on from the fence that this library granted.
TEST_F(RedisFences, TypeScriptCountsOnFromOurFence) {
  const auto ours = grant_some(server);
  EXPECT_EQ(server.command({"GET", counter}), std::to_string(ours.value())) << "all digits, no exponent";
  EXPECT_EQ(server.command({"INCR", counter}), std::to_string(ours.value() + 1));
  EXPECT_EQ(server.command({"INCR", counter}), std::to_string(ours.value() + 2));
  const auto next = grant_some(server);
  EXPECT_GT(next, Fence(ours.value() + 2));

  // If it is the first to grant a key after a loss, that one fence is unprotected. The next of ours is not.
  server.command({"FLUSHALL"});
  EXPECT_EQ(server.command({"INCR", counter}), "1");
  EXPECT_GT(open_with_long_timeout(server.url()).acquire("key").fence(), next);
}

// The real script, with another clock.
TEST_F(RedisFences, AbsurdClockIsIgnored) {
  const auto fence_at = [this](const std::string& seconds, const std::string& microseconds) {
    server.command({"DEL", "syncguard:key"});
    server.command({"EVAL", at_time(seconds, microseconds, redis::scripts().acquire), "4", "syncguard:key", counter,
                    "syncguard-turn:key", "syncguard:id:x", "x", "1000", "2000", R"("key")", "clock", ""});
    return server.command({"GET", counter});
  };
  EXPECT_EQ(fence_at("0", "0"), "1");
  EXPECT_EQ(fence_at("1794777078", "522099"), "17947770785220");
  EXPECT_EQ(fence_at("1794777078", "522099"), "17947770785221") << "a clock that stands still";
  EXPECT_EQ(fence_at("1794777077", "522099"), "17947770785222") << "a clock that was set back";
  EXPECT_EQ(fence_at("9000000000", "100"), "17947770785223") << "beyond Fence::warn_above";
  EXPECT_EQ(fence_at("99999999999", "0"), "17947770785224");
  EXPECT_EQ(fence_at("9000000000", "0"), "90000000000000") << "Fence::warn_above itself";
}

}  // namespace
}  // namespace syncguard::testing
