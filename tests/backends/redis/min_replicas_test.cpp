// The option min_replicas: a grant or an extension counts only when replicas have it.

#include "contract/contract.hpp"
#include "redis_pair.hpp"
#include "servers/redis_server.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/long_timeouts.hpp"

#include <syncguard/redis.hpp>
#include <syncguard/registry.hpp>
#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string one_replica = "&min_replicas=1";
// For tests in which the replica does not reply.
const std::string soon_given_up = one_replica + "&replica_timeout=100ms";
// For tests in which it replies after a while, on a machine that is busy.
const std::string never_given_up = one_replica + "&replica_timeout=50s&silence_timeout=60s";
const ClientOptions long_timeout{.operation_timeout = 60s};

std::string field_of(const std::string& info, const std::string& name) {
  const auto at = info.find(name);
  if (at == std::string::npos) return "";
  const auto begin = at + name.size();
  return info.substr(begin, info.find_first_of(", \r\n", begin) - begin);
}

// Acquires a lock that is not released.
Fence fence_of_kept_lock(Locks& locks, const AcquireOptions& options) {
  auto lease = locks.acquire("key", options);
  (void)lease.detach();
  return lease.fence();
}

struct RedisMinReplicas : ::testing::Test {
  RedisMinReplicas() {
    for (auto* server : {&pair.master, &pair.replica}) server->command({"ACL", "SETUSER", RedisServer::user, "+wait"});
  }
  ~RedisMinReplicas() override { replica.resume(); }

  // Waits until a WAIT blocks its connection.
  void expect_blocked() {
    EXPECT_TRUE(eventually([&] { return is_blocked(); }));
  }
  bool is_blocked() { return field_of(master.command({"INFO", "clients"}), "blocked_clients:") == "1"; }

  RedisPair pair;
  RedisServer& master = pair.master;
  RedisServer& replica = pair.replica;
};

TEST_F(RedisMinReplicas, UnconfirmedGrantIsRetracted) {
  auto locks = open_with_long_timeout(master.url(soon_given_up));
  replica.pause();
  const auto error = error_of([&] { (void)locks.try_acquire("key", {.ttl = 10min}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_THAT(error->what(), HasSubstr("too few replicas of Redis confirmed a lock within replica_timeout: 0 of 1"));
  EXPECT_TRUE(eventually([&] { return master.command({"EXISTS", "syncguard:key"}) == "0"; }));
  const Fence lost(std::stoull(master.command({"GET", "syncguard:fence:syncguard:key"})));

  replica.resume();
  EXPECT_GT(locks.acquire("key", {.wait = {.timeout = 60s}}).fence(), lost);
}

// On another connection, as after the first one was lost. WAIT promises something only about writes of its connection.
TEST_F(RedisMinReplicas, RepeatedAcquireWritesAndIsConfirmed) {
  const auto make = [&] {
    BackendUrl url(master.url(soon_given_up));
    return make_backend(url);
  };
  RawBackend first(make());
  RawBackend second(make());
  const auto id = LockId::generate();
  replica.pause();
  for (auto* backend : {&first, &second}) {
    const auto error = error_of([&] { (void)backend->acquire("key", id, 10min); });
    ASSERT_TRUE(error) << "no replica has the lock";
    EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
    EXPECT_TRUE(error->in_doubt());
  }
  const auto document = master.command({"GET", "syncguard:key"});
  replica.resume();
  master.command({"CONFIG", "RESETSTAT"});
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)granted(second.acquire("key", id, 10min)); }); }));
  EXPECT_THAT(master.command({"INFO", "commandstats"}), HasSubstr("cmdstat_set:"));
  EXPECT_EQ(replica.command({"GET", "syncguard:key"}), document);
  EXPECT_LE(std::stoll(master.command({"PTTL", "syncguard:key"})), 601'000) << "repeating does not extend the lock";

  // Nothing is written if no replica has to confirm.
  BackendUrl url(master.url());
  RawBackend unconfirmed(make_backend(url));
  master.command({"CONFIG", "RESETSTAT"});
  (void)granted(unconfirmed.acquire("key", id, 10min));
  EXPECT_THAT(master.command({"INFO", "commandstats"}), Not(HasSubstr("cmdstat_set:")));
}

TEST_F(RedisMinReplicas, UnconfirmedExtensionKeepsEarlierDeadline) {
  auto locks = open_with_long_timeout(master.url(soon_given_up));
  auto lease = locks.acquire("key", {.ttl = 10min, .wait = {.timeout = 60s}});
  const auto expires_at = lease.expires_at();
  replica.pause();
  const auto error = error_of([&] { (void)lease.extend(20min); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_EQ(lease.expires_at(), expires_at);
  EXPECT_LE(lease.remaining(), 10min);
  EXPECT_FALSE(lease.lost().stop_requested());
  EXPECT_EQ(master.command({"EXISTS", "syncguard:key"}), "1") << "an extension must not be retracted";

  replica.resume();
  EXPECT_TRUE(eventually([&] { return !error_of([&] { EXPECT_TRUE(lease.extend(20min)); }); }));
  EXPECT_GT(lease.remaining(), 10min);
}

TEST_F(RedisMinReplicas, PromotedReplicaHasEveryGrantedLock) {
  auto locks = open_with_long_timeout(master.url(never_given_up), long_timeout);
  replica.pause();
  auto granted = std::async(std::launch::async, [&] { return fence_of_kept_lock(locks, {.ttl = 10min}); });
  expect_blocked();
  EXPECT_EQ(master.command({"EXISTS", "syncguard:key"}), "1");
  EXPECT_EQ(granted.wait_for(0s), std::future_status::timeout) << "no replica has the lock";

  replica.resume();
  const auto fence = granted.get();
  master.kill();
  replica.command({"REPLICAOF", "NO", "ONE"});
  auto others = open_with_long_timeout(replica.url());
  EXPECT_TRUE(others.is_locked("key"));
  EXPECT_EQ(others.admin().get_by_key("key").value().fence, fence);
}

TEST_F(RedisMinReplicas, GrantsShareWaits) {
  constexpr int grants = 50;
  auto locks = open_with_long_timeout(master.url(never_given_up), long_timeout);
  std::vector<std::future<Fence>> fences;
  const auto start_grant = [&](int number) {
    fences.push_back(std::async(std::launch::async, [&locks, key = "key " + std::to_string(number)] {
      return locks.acquire(key, {.wait = {.timeout = 60s}}).fence();
    }));
  };
  replica.pause();
  start_grant(0);
  expect_blocked();
  for (int i = 1; i < grants; ++i) start_grant(i);
  // All requests have arrived, and wait behind WAIT.
  constexpr int min_request_bytes = 200;
  EXPECT_TRUE(eventually([&] {
    const auto clients = master.command({"CLIENT", "LIST"});
    int bytes = 0;
    for (auto at = clients.find("name=test"); at != std::string::npos; at = clients.find("name=test", at + 1)) {
      bytes += std::stoi(field_of(clients.substr(at), " qbuf="));
    }
    return bytes > (grants - 1) * min_request_bytes;
  }));
  replica.resume();
  for (auto& fence : fences) EXPECT_GT(fence.get(), Fence());
  EXPECT_LE(std::stoi(field_of(master.command({"INFO", "commandstats"}), "cmdstat_wait:calls=")), grants / 2);
}

TEST_F(RedisMinReplicas, ReleasesAndReadsDoNotWait) {
  auto locks = open_with_long_timeout(master.url(never_given_up), long_timeout);
  auto held = locks.acquire("held");
  replica.pause();
  auto granted = std::async(std::launch::async, [&] { return locks.acquire("key").fence(); });
  expect_blocked();
  EXPECT_TRUE(locks.is_locked("key"));
  EXPECT_TRUE(locks.admin().get_by_key("held"));
  EXPECT_TRUE(held.release());
  EXPECT_TRUE(is_blocked()) << "they must not have waited for the replica";
  replica.resume();
  EXPECT_GT(granted.get(), Fence());
}

TEST_F(RedisMinReplicas, ConnectionsForGrantsAreCounted) {
  const Metrics metrics;
  const auto connections = [&] { return metrics.snapshot().at(0).connections_open; };
  auto locks = open_with_long_timeout(master.url(never_given_up),
                                      {.operation_timeout = long_timeout.operation_timeout, .metrics = metrics});
  auto lease = locks.acquire("key");
  EXPECT_EQ(connections(), 1U) << "the connection for acquires and extensions";
  EXPECT_TRUE(lease.release());
  EXPECT_EQ(connections(), 2U) << "releases have another one";
  locks.close();
  EXPECT_TRUE(eventually([&] { return connections() == 0; }));
}

TEST_F(RedisMinReplicas, WaiterIsWokenAndConfirmed) {
  auto locks = open_with_long_timeout(master.url(never_given_up), long_timeout);
  auto lease = locks.acquire("key", {.ttl = 10min});
  auto other = open_with_long_timeout(master.url(never_given_up), long_timeout);
  auto waiter = std::async(std::launch::async, [&] { return fence_of_kept_lock(other, patient); });
  EXPECT_TRUE(eventually([&] { return master.command({"ZCARD", "syncguard-queue:key"}) == "1"; }));
  EXPECT_TRUE(lease.release());
  EXPECT_GT(waiter.get(), lease.fence());
  EXPECT_EQ(replica.command({"EXISTS", "syncguard:key"}), "1");
}

TEST_F(RedisMinReplicas, MasterThatBecameReplicaConfirmsNothing) {
  auto locks = open_with_long_timeout(master.url(never_given_up), long_timeout);
  replica.pause();
  auto outcome = std::async(std::launch::async, [&] { return error_of([&] { (void)locks.try_acquire("key"); }); });
  expect_blocked();
  // Nothing listens at port 1.
  master.command({"REPLICAOF", "127.0.0.1", "1"});
  const auto error = outcome.get();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_THAT(error->what(), HasSubstr("no longer a master"));
  // So that the lock can be retracted.
  master.command({"REPLICAOF", "NO", "ONE"});
}

TEST_F(RedisMinReplicas, NeedsPermissionForWait) {
  master.command({"ACL", "SETUSER", RedisServer::user, "-wait"});
  auto locks = open_with_long_timeout(master.url(one_replica));
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::auth_failed);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_TRUE(eventually([&] { return master.command({"EXISTS", "syncguard:key"}) == "0"; }));
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "min_replicas"), StartsWith("failure: WAIT is rejected: NOPERM"));
}

TEST_F(RedisMinReplicas, DiagnosisCountsReplicas) {
  auto locks = open_with_long_timeout(master.url(one_replica));
  expect_fine(locks, {"min_replicas"});
  auto two = open_with_long_timeout(master.url("&min_replicas=2&replica_timeout=100ms"));
  EXPECT_THAT(verdict_on(two.admin().diagnose(), "min_replicas"), StartsWith("failure: only "));
  replica.pause();
  auto paused = open_with_long_timeout(master.url(soon_given_up));
  EXPECT_THAT(verdict_on(paused.admin().diagnose(), "min_replicas"),
              StartsWith("failure: only 0 of 1 replicas confirm within replica_timeout"));
  EXPECT_EQ(verdict_on(open_with_long_timeout(master.url()).admin().diagnose(), "min_replicas"), "");
}

TEST(RedisMinReplicasOptions, BadValuesAreRejected) {
  const auto message_for = [](const std::string& options) {
    const auto error = error_of([&] { (void)open("redis://127.0.0.1/?" + options); });
    return error && error->code() == ErrorCode::invalid_argument ? std::string(error->what()) : "accepted";
  };
  for (const auto* number : {"-1", "17", "99999999999999999999", "many", "1.5"}) {
    EXPECT_THAT(message_for("min_replicas=" + std::string(number)), HasSubstr("from 0 to 16"));
  }
  EXPECT_THAT(message_for("min_replicas=1&replica_timeout=0s"), HasSubstr("replica_timeout must be positive"));
  EXPECT_THAT(message_for("min_replicas=1&replica_timeout=3s"), HasSubstr("not be longer than operation_timeout"));
  EXPECT_THAT(message_for("min_replicas=1&operation_timeout=400ms"), HasSubstr("not be longer than operation_timeout"));
  EXPECT_THAT(message_for("min_replicas=1&replica_timeout=1s&silence_timeout=1s"),
              HasSubstr("shorter than silence_timeout"));
  EXPECT_EQ(message_for("min_replicas=16&replica_timeout=2s"), "accepted");
  RedisOptions options;
  options.min_replicas = 17;
  expect_error(ErrorCode::invalid_argument, [&] { (void)make_redis_backend(options); });
}

}  // namespace
}  // namespace syncguard::testing
