// Redis Cluster: one slot for everything, and nodes that send us elsewhere.

#include "eventually.hpp"
#include "expect_error.hpp"
#include "patience.hpp"
#include "servers/redis_server.hpp"

#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;

const std::string tagged = "&prefix=%7Bsyncguard%7D";

TEST(RedisCluster, RefusesAPrefixWithoutAHashTagAndSaysHowToMendIt) {
  RedisServer node({.cluster = true});
  node.command({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
  auto locks = open_patiently(node.url());
  const auto error = error_of([&] { (void)locks.acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("{syncguard}"));
  expect_error(ErrorCode::invalid_argument, [&] { (void)open_patiently(node.url("&prefix=a%7B%7Db")).acquire("key"); });
}

// Two nodes; all slots belong to the second.
struct TwoNodes : public ::testing::Test {
  TwoNodes() {
    owner.command({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
    entry.command({"CLUSTER", "MEET", "127.0.0.1", std::to_string(owner.port())});
    for (auto* node : {&entry, &owner}) {
      EXPECT_TRUE(eventually([&] {
        const auto info = node->command({"CLUSTER", "INFO"});
        return info.find("cluster_state:ok") != std::string::npos &&
               info.find("cluster_slots_ok:16384") != std::string::npos;
      }));
    }
  }

  RedisServer entry{{.cluster = true}};
  RedisServer owner{{.cluster = true}};
};

TEST_F(TwoNodes, GoesWhereTheKeysAre) {
  auto locks = open_patiently(entry.url(tagged));
  auto lease = locks.acquire("key");
  EXPECT_EQ(owner.command({"EXISTS", "{syncguard}:key"}), "1");
  EXPECT_TRUE(lease.extend(10s));
  // Wake-ups, too, come from there.
  auto other = open_patiently(entry.url(tagged));
  std::thread waiting(
      [&] { EXPECT_TRUE(other.acquire("key", {.wait = {.timeout = 30s, .retry_delay = 20s, .max_delay = 20s}})); });
  EXPECT_TRUE(eventually([&] { return owner.command({"ZCARD", "{syncguard}-queue:key"}) == "1"; }));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(lease.release());
  waiting.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 8s) << "far below the delay, which is ten seconds at least";
}

TEST_F(TwoNodes, KeysThatAreBeingMovedAreUnavailable) {
  auto locks = open_patiently(owner.url(tagged));
  (void)locks.is_locked("key");
  const auto slot = owner.command({"CLUSTER", "KEYSLOT", "{syncguard}"});
  owner.command({"CLUSTER", "SETSLOT", slot, "MIGRATING", entry.command({"CLUSTER", "MYID"})});
  entry.command({"CLUSTER", "SETSLOT", slot, "IMPORTING", owner.command({"CLUSTER", "MYID"})});
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.is_locked("key"); });
  owner.command({"CLUSTER", "SETSLOT", slot, "STABLE"});
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_F(TwoNodes, AClusterThatIsDown) {
  auto locks = open_patiently(owner.url(tagged));
  (void)locks.is_locked("key");
  owner.command({"CLUSTER", "DELSLOTS", "0"});
  EXPECT_TRUE(eventually([&] {
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    return error && error->code() == ErrorCode::service_unavailable;
  }));
}

TEST_F(TwoNodes, WhenTheNodeItWasSentToIsGoneItAsksTheFirstOneAgain) {
  auto locks = open_patiently(entry.url(tagged));
  (void)locks.is_locked("key");
  const auto slot = owner.command({"CLUSTER", "KEYSLOT", "{syncguard}"});
  owner.kill();
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.is_locked("key"); });
  // The first node takes the keys over.
  entry.command({"CONFIG", "SET", "cluster-require-full-coverage", "no"});
  entry.command({"CLUSTER", "SETSLOT", slot, "NODE", entry.command({"CLUSTER", "MYID"})});
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }));
}

TEST_F(TwoNodes, ALockWhoseKeysAreOnTheirWayIsUnavailable) {
  auto locks = open_patiently(owner.url(tagged));
  auto other = open_patiently(owner.url(tagged));
  auto lease = locks.acquire("key");
  (void)other.try_acquire("another");
  const auto slot = owner.command({"CLUSTER", "KEYSLOT", "{syncguard}"});
  owner.command({"CLUSTER", "SETSLOT", slot, "MIGRATING", entry.command({"CLUSTER", "MYID"})});
  entry.command({"CLUSTER", "SETSLOT", slot, "IMPORTING", owner.command({"CLUSTER", "MYID"})});
  owner.command({"MIGRATE", "127.0.0.1", std::to_string(entry.port()), "{syncguard}:key", "0", "20000"});
  // Only one of its keys is here: TRYAGAIN.
  expect_error(ErrorCode::service_unavailable, [&] { (void)other.try_acquire("key"); });
  // The index is here, and the lock that it leads to is not: an error inside the script.
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.release(lease.id()); });
}

TEST_F(TwoNodes, OtherDatabasesDoNotExist) {
  auto locks = open_patiently(owner.url(tagged + "&database=3"));
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_FALSE(error->in_doubt()) << "nothing was sent";
}

}  // namespace
}  // namespace syncguard::testing
