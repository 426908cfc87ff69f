// Redis Cluster: all keys are in one slot, and nodes redirect clients.

#include "servers/loopback.hpp"
#include "servers/redis_server.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/is_granted.hpp"
#include "support/long_timeouts.hpp"

#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;

const std::string tagged = "&prefix=%7Bsyncguard%7D";

TEST(RedisCluster, RejectsPrefixWithoutHashTagAndSaysHowToFixIt) {
  RedisServer node({.cluster = true});
  node.command({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
  auto locks = open_with_long_timeout(node.url());
  const auto error = error_of([&] { (void)locks.acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("{syncguard}"));
  expect_error(ErrorCode::invalid_argument,
               [&] { (void)open_with_long_timeout(node.url("&prefix=a%7B%7Db")).acquire("key"); });
}

// Two nodes; all slots belong to the second.
struct RedisClusterOfTwoNodes : public ::testing::Test {
  RedisClusterOfTwoNodes() {
    owner.command({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
    entry.command({"CLUSTER", "MEET", "127.0.0.1", std::to_string(owner.port())});
    for (auto* node : {&entry, &owner}) {
      const auto other = (node == &entry ? owner : entry).command({"CLUSTER", "MYID"});
      EXPECT_TRUE(eventually([&] {
        const auto info = node->command({"CLUSTER", "INFO"});
        return info.find("cluster_state:ok") != std::string::npos &&
               info.find("cluster_slots_ok:16384") != std::string::npos &&
               node->command({"CLUSTER", "NODES"}).find(other) != std::string::npos;
      }));
    }
  }

  RedisServer entry{{.cluster = true}};
  RedisServer owner{{.cluster = true}};
};

TEST_F(RedisClusterOfTwoNodes, FollowsRedirectionToKeys) {
  auto locks = open_with_long_timeout(entry.url(tagged));
  auto lease = locks.acquire("key");
  EXPECT_EQ(owner.command({"EXISTS", "{syncguard}:key"}), "1");
  EXPECT_TRUE(lease.extend(10s));
  // Wake-ups also come from the owner.
  auto other = open_with_long_timeout(entry.url(tagged));
  std::thread waiting(
      [&] { EXPECT_TRUE(other.acquire("key", {.wait = {.timeout = 30s, .retry_delay = 20s, .max_delay = 20s}})); });
  EXPECT_TRUE(eventually([&] { return owner.command({"ZCARD", "{syncguard}-queue:key"}) == "1"; }));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(lease.release());
  waiting.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 8s)
      << "the release must wake the waiter; its retry delay is at least ten seconds";
}

TEST_F(RedisClusterOfTwoNodes, ListsLocksOfTheirNode) {
  auto locks = open_with_long_timeout(entry.url(tagged));
  EXPECT_TRUE(locks.admin().list().locks.empty()) << "also if it is the first request";
  auto lease = locks.acquire("key");
  const auto page = open_with_long_timeout(entry.url(tagged)).admin().list();
  ASSERT_EQ(page.locks.size(), 1U);
  EXPECT_EQ(page.locks[0].key, Key("key"));
  EXPECT_EQ(page.locks[0].waiters, 0U);
  EXPECT_TRUE(locks.admin().break_lock("key", locks.admin().inspect("key").holders.at(0).fence));
  EXPECT_EQ(owner.command({"KEYS", "*"}), "{syncguard}:fence:{syncguard}:key");
  lease.detach();
}

TEST_F(RedisClusterOfTwoNodes, AnyOfSeveralAddressesLeadsToKeys) {
  const LoopbackSocket dead;
  const auto addresses = "127.0.0.1:" + std::to_string(dead.port()) + ",127.0.0.1:" + std::to_string(entry.port());
  auto locks = open_with_long_timeout("redis://" + addresses + "?prefix=%7Bsyncguard%7D");
  const auto lease = locks.acquire("key");
  EXPECT_EQ(owner.command({"EXISTS", "{syncguard}:key"}), "1");
}

TEST_F(RedisClusterOfTwoNodes, HoldersGoOnWhileTheirSlotMoves) {
  auto locks = open_with_long_timeout(owner.url(tagged));
  auto lease = locks.acquire("key", {.ttl = 10min});
  const auto slot = owner.command({"CLUSTER", "KEYSLOT", "{syncguard}"});
  const auto new_owner = entry.command({"CLUSTER", "MYID"});
  owner.command({"CLUSTER", "SETSLOT", slot, "MIGRATING", new_owner});
  entry.command({"CLUSTER", "SETSLOT", slot, "IMPORTING", owner.command({"CLUSTER", "MYID"})});
  EXPECT_TRUE(lease.extend(10min)) << "before its keys have moved";
  EXPECT_FALSE(locks.is_locked("another"));
  // Neither node could decide about a key of which it has no part, and the other one perhaps some.
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.try_acquire("another"); });

  const std::string index = "{syncguard}:id:" + lease.id().str();
  owner.command({"MIGRATE", "127.0.0.1", std::to_string(entry.port()), "", "0", "20000", "KEYS", index,
                 "{syncguard}:key", "{syncguard}:fence:{syncguard}:key"});
  EXPECT_TRUE(lease.extend(10min)) << "after its keys have moved";
  EXPECT_TRUE(locks.is_locked("key"));
  EXPECT_TRUE(locks.admin().owns(lease.id()));

  for (auto* node : {&entry, &owner}) node->command({"CLUSTER", "SETSLOT", slot, "NODE", new_owner});
  EXPECT_TRUE(lease.release());
  EXPECT_GT(locks.acquire("key").fence(), lease.fence());
}

TEST_F(RedisClusterOfTwoNodes, WaitersFollowTheirSlot) {
  auto locks = open_with_long_timeout(owner.url(tagged));
  auto lease = locks.acquire("key", {.ttl = 10min});
  auto other = open_with_long_timeout(owner.url(tagged));
  // An attempt while the slot moves fails, and is repeated.
  constexpr AcquireOptions waits{.wait = {.timeout = 60s, .max_delay = 1s}};
  auto waiter = std::async(std::launch::async, [&] { return other.acquire("key", waits).fence(); });
  const std::string queue = "{syncguard}-queue:key";
  EXPECT_TRUE(eventually([&] { return owner.command({"ZCARD", queue}) == "1"; }));

  const auto slot = owner.command({"CLUSTER", "KEYSLOT", "{syncguard}"});
  const auto new_owner = entry.command({"CLUSTER", "MYID"});
  owner.command({"CLUSTER", "SETSLOT", slot, "MIGRATING", new_owner});
  entry.command({"CLUSTER", "SETSLOT", slot, "IMPORTING", owner.command({"CLUSTER", "MYID"})});
  owner.command({"MIGRATE", "127.0.0.1", std::to_string(entry.port()), "", "0", "20000", "KEYS", queue,
                 "{syncguard}:key", "{syncguard}:id:" + lease.id().str(), "{syncguard}:fence:{syncguard}:key"});
  for (auto* node : {&entry, &owner}) node->command({"CLUSTER", "SETSLOT", slot, "NODE", new_owner});
  EXPECT_TRUE(eventually([&] {
    return entry.command({"PUBSUB", "CHANNELS", "{syncguard}-wake:*"}) != "" && entry.command({"ZCARD", queue}) == "1";
  })) << "the waiter must subscribe to the new node";
  EXPECT_TRUE(lease.release());
  EXPECT_GT(waiter.get(), lease.fence());
}

TEST_F(RedisClusterOfTwoNodes, ReplicasConfirmGrantsOfTheirNode) {
  owner.command({"CONFIG", "SET", "repl-diskless-sync-delay", "0"});
  entry.command({"CLUSTER", "REPLICATE", owner.command({"CLUSTER", "MYID"})});
  for (auto* node : {&entry, &owner}) node->command({"ACL", "SETUSER", RedisServer::user, "+wait"});
  // By way of the replica.
  auto locks = open_with_long_timeout(entry.url(tagged + "&min_replicas=1&replica_timeout=1s"));
  auto lease = locks.acquire("key", {.ttl = 10min, .wait = {.timeout = 60s}});
  EXPECT_EQ(entry.command({"DBSIZE"}), owner.command({"DBSIZE"})) << "the replica has the lock";
  EXPECT_TRUE(eventually([&] { return !error_of([&] { EXPECT_TRUE(lease.extend(10min)); }); }));
  EXPECT_TRUE(locks.is_locked("key"));
  EXPECT_TRUE(lease.release());
}

TEST_F(RedisClusterOfTwoNodes, ClusterDown) {
  auto locks = open_with_long_timeout(owner.url(tagged));
  (void)locks.is_locked("key");
  owner.command({"CLUSTER", "DELSLOTS", "0"});
  EXPECT_TRUE(eventually([&] {
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    return error && error->code() == ErrorCode::service_unavailable;
  }));
}

TEST_F(RedisClusterOfTwoNodes, ReturnsToConfiguredNodeIfRedirectedNodeIsGone) {
  auto locks = open_with_long_timeout(entry.url(tagged));
  (void)locks.is_locked("key");
  const auto slot = owner.command({"CLUSTER", "KEYSLOT", "{syncguard}"});
  owner.kill();
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.is_locked("key"); });
  // The other node takes over the slot.
  entry.command({"CONFIG", "SET", "cluster-require-full-coverage", "no"});
  entry.command({"CLUSTER", "SETSLOT", slot, "NODE", entry.command({"CLUSTER", "MYID"})});
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }));
}

TEST_F(RedisClusterOfTwoNodes, LockWithMigratingKeysIsUnavailable) {
  auto locks = open_with_long_timeout(owner.url(tagged));
  auto other = open_with_long_timeout(owner.url(tagged));
  // Without a lease, which would retry its release for seconds.
  const auto id = locks.acquire("key").detach();
  (void)other.try_acquire("another");
  const auto slot = owner.command({"CLUSTER", "KEYSLOT", "{syncguard}"});
  owner.command({"CLUSTER", "SETSLOT", slot, "MIGRATING", entry.command({"CLUSTER", "MYID"})});
  entry.command({"CLUSTER", "SETSLOT", slot, "IMPORTING", owner.command({"CLUSTER", "MYID"})});
  owner.command({"MIGRATE", "127.0.0.1", std::to_string(entry.port()), "{syncguard}:key", "0", "20000"});
  // Only some of the lock's keys are left on this node: TRYAGAIN.
  expect_error(ErrorCode::service_unavailable, [&] { (void)other.try_acquire("key"); });
  // The index is on this node, but the lock it refers to is not: an error inside the script.
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.release(id); });
}

// While a slot moves, some keys of a lock may be on the new node and others still on the old one. Every answer is
// right, or it says that the store is unavailable.
TEST_F(RedisClusterOfTwoNodes, NoAnswerIsWrongWhileSomeKeysHaveMoved) {
  const auto slot = owner.command({"CLUSTER", "KEYSLOT", "{syncguard}"});
  const auto old_node = owner.command({"CLUSTER", "MYID"});
  const auto new_node = entry.command({"CLUSTER", "MYID"});
  const auto key_of_lock = std::string("{syncguard}:key");
  const auto counter = "{syncguard}:fence:" + key_of_lock;
  // A node without slots would become a replica.
  for (auto* node : {&entry, &owner}) node->command({"CONFIG", "SET", "cluster-allow-replica-migration", "no"});
  // Assigns the slot. A node that does not know the epoch of the other one yet would give the slot back.
  const auto epoch_of = [](auto& node) {
    const std::string info = node.command({"CLUSTER", "INFO"});
    const auto start = info.find("cluster_current_epoch:");
    return start == std::string::npos ? info : info.substr(start, info.find('\n', start) - start);
  };
  const auto assign_slot = [&](const std::string& node_id, auto& to, auto& from) {
    ASSERT_TRUE(eventually([&] { return epoch_of(entry) == epoch_of(owner); }));
    for (auto* node : {&to, &from}) node->command({"CLUSTER", "SETSLOT", slot, "NODE", node_id});
  };
  int answered = 0;
  // Returns nothing if the store is unavailable.
  const auto answer_of = [&](const auto& operation) {
    std::optional<std::invoke_result_t<decltype(operation)>> answer;
    const auto error = error_of([&] { answer.emplace(operation()); });
    if (error) {
      EXPECT_EQ(error->code(), ErrorCode::service_unavailable) << error->what();
    }
    answered += answer ? 1 : 0;
    return answer;
  };
  enum Moved : unsigned { nothing = 0, moved_index = 1, moved_lock = 2, moved_counter = 4, moved_queue = 8, all = 15 };
  for (unsigned moved = nothing; moved <= all; ++moved) {
    SCOPED_TRACE(moved);
    auto locks = open_with_long_timeout(owner.url(tagged));
    auto other = open_with_long_timeout(owner.url(tagged));
    auto lease = locks.acquire("key", {.ttl = 10min, .wait = {.timeout = 60s}});
    const auto fence = lease.fence();
    const auto id = lease.detach();
    const std::string index = "{syncguard}:id:" + id.str();
    const std::string queue = "{syncguard}-queue:key";
    owner.command({"ZADD", queue, "13600000000001", LockId::generate().str()});
    owner.command({"PEXPIRE", queue, "3600000"});
    entry.command({"CLUSTER", "SETSLOT", slot, "IMPORTING", old_node});
    owner.command({"CLUSTER", "SETSLOT", slot, "MIGRATING", new_node});
    for (const auto& [bit, name] : {std::pair{moved_index, index}, std::pair{moved_lock, key_of_lock},
                                    std::pair{moved_counter, counter}, std::pair{moved_queue, queue}}) {
      if ((moved & bit) == 0) continue;
      owner.command({"MIGRATE", "127.0.0.1", std::to_string(entry.port()), name, "0", "20000"});
    }

    EXPECT_TRUE(answer_of([&] { return locks.extend(id, 10min).has_value(); }).value_or(true));
    EXPECT_TRUE(answer_of([&] { return locks.admin().owns(id); }).value_or(true));
    EXPECT_TRUE(answer_of([&] { return locks.admin().get_by_id_raw(id).has_value(); }).value_or(true));
    EXPECT_TRUE(answer_of([&] { return locks.is_locked("key"); }).value_or(true));
    EXPECT_TRUE(answer_of([&] { return locks.lookup("key").has_value(); }).value_or(true));
    EXPECT_FALSE(answer_of([&] { return is_granted(other.try_acquire("key")); }).value_or(false));
    EXPECT_FALSE(answer_of([&] { return is_granted(other.try_acquire("another")); }).value_or(false))
        << "the counter of another key may be on either node";
    EXPECT_EQ(answer_of([&] { return locks.admin().list().locks.size(); }).value_or(1), 1U);
    const auto state = answer_of([&] { return locks.admin().inspect("key"); });
    if (state) {
      EXPECT_FALSE(state->holders.empty());
      EXPECT_EQ(state->fence, fence);
    }
    EXPECT_EQ(answer_of([&] { return locks.admin().raise_fence("key", Fence(1)); }).value_or(fence), fence);
    EXPECT_FALSE(answer_of([&] { return locks.admin().break_lock("key", Fence(fence.value() + 1)); }).value_or(false));
    // Breaks the lock of every second round, and releases the others.
    const auto removed = moved % 2 == 0 ? answer_of([&] { return locks.admin().break_lock("key", fence); })
                                        : answer_of([&] { return locks.release(id); });
    EXPECT_TRUE(removed.value_or(true));

    // The move ends, and everything is where clients look for it.
    for (const auto& name : {index, key_of_lock, counter, queue}) {
      owner.command({"MIGRATE", "127.0.0.1", std::to_string(entry.port()), name, "0", "20000"});
    }
    assign_slot(new_node, entry, owner);
    EXPECT_EQ(locks.is_locked("key"), !removed.has_value());
    if (!removed) {
      EXPECT_TRUE(locks.release(id));
    }
    EXPECT_GT(locks.acquire("key", {.wait = {.timeout = 60s}}).fence(), fence);
    // And back again.
    owner.command({"CLUSTER", "SETSLOT", slot, "IMPORTING", new_node});
    entry.command({"CLUSTER", "SETSLOT", slot, "MIGRATING", old_node});
    std::istringstream names(entry.command({"KEYS", "*"}));
    for (std::string name; std::getline(names, name);) {
      entry.command({"MIGRATE", "127.0.0.1", std::to_string(owner.port()), name, "0", "20000"});
    }
    assign_slot(old_node, owner, entry);
  }
  EXPECT_GT(answered, 50);
}

// A lock that renews itself is not lost because its index moved first.
TEST_F(RedisClusterOfTwoNodes, LockWhoseIndexHasMovedIsUnavailableInsteadOfExpired) {
  auto locks = open_with_long_timeout(owner.url(tagged));
  const auto id = locks.acquire("key", {.ttl = 10min}).detach();
  const auto slot = owner.command({"CLUSTER", "KEYSLOT", "{syncguard}"});
  owner.command({"CLUSTER", "SETSLOT", slot, "MIGRATING", entry.command({"CLUSTER", "MYID"})});
  entry.command({"CLUSTER", "SETSLOT", slot, "IMPORTING", owner.command({"CLUSTER", "MYID"})});
  owner.command({"MIGRATE", "127.0.0.1", std::to_string(entry.port()), "{syncguard}:id:" + id.str(), "0", "20000"});
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.extend(id, 10min); });
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.admin().owns(id); });
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.release(id); });
  owner.command({"MIGRATE", "127.0.0.1", std::to_string(entry.port()), "{syncguard}:key", "0", "20000"});
  EXPECT_TRUE(locks.extend(id, 10min));
  EXPECT_TRUE(locks.release(id));
}

TEST_F(RedisClusterOfTwoNodes, OtherDatabasesDoNotExist) {
  auto locks = open_with_long_timeout(owner.url(tagged + "&database=3"));
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_FALSE(error->in_doubt()) << "the acquire was never sent";
}

}  // namespace
}  // namespace syncguard::testing
