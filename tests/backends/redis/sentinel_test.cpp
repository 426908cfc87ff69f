// Redis behind real Sentinels, and behind some that are dead, silent or wrong.

#include "redis_pair.hpp"
#include "redis_sentinel.hpp"
#include "servers/certificates.hpp"
#include "servers/fake_redis.hpp"
#include "servers/loopback.hpp"
#include "servers/redis_server.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/long_timeouts.hpp"
#include "support/temporary_folder.hpp"

#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct RedisReplicated : ::testing::Test, RedisPair {};

TEST_F(RedisReplicated, SeveralAddressesLeadToMaster) {
  const LoopbackSocket dead;
  const auto addresses = address_of(dead.port()) + "," + address_of(replica.port()) + "," + address_of(master.port());
  auto locks = open_with_long_timeout("redis://" + credentials + addresses + "?connect_timeout=20s");
  const auto fence = locks.acquire("key").fence();
  EXPECT_EQ(master.command({"EXISTS", "syncguard:fence:syncguard:key"}), "1");

  master.kill();
  const auto error =
      error_of([&] { (void)open_with_long_timeout("redis://" + credentials + addresses).try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable) << "the replica must not be used";
  replica.command({"REPLICAOF", "NO", "ONE"});
  EXPECT_GT(locks.acquire("key", {.wait = {.timeout = 60s}}).fence(), fence);
}

// A replica that was cut off is promoted. The client that only counts shows that the newest counters were lost.
TEST_F(RedisSentinel, FencesGrowAfterReplicaThatWasCutOffIsPromoted) {
  constexpr AcquireOptions retrying{.wait = {.timeout = 60s}};
  constexpr int grants = 10;
  auto locks = open_with_long_timeout(url());
  auto counting = open_with_long_timeout(url("&fences=counter"));
  std::vector<Fence> fences;
  std::vector<Fence> counted;
  const auto grant_some = [&] {
    for (int i = 0; i < grants; ++i) {
      fences.push_back(locks.acquire("key", retrying).fence());
      counted.push_back(counting.acquire("counted", retrying).fence());
    }
  };
  const auto counter_on = [](RedisServer& server) { return server.command({"GET", "syncguard:fence:syncguard:key"}); };
  grant_some();
  // The last releases, too: a lock whose release was lost is held until its ttl ends.
  EXPECT_TRUE(eventually([&] {
    return counter_on(replica) == std::to_string(fences.back().value()) &&
           replica.command({"EXISTS", "syncguard:key", "syncguard:counted"}) == "0";
  }));
  cut_off_replica();
  grant_some();
  EXPECT_EQ(counter_on(master), std::to_string(fences.back().value()));
  kill_master();
  EXPECT_EQ(counter_on(replica), std::to_string(fences.at(grants - 1).value())) << "the replica must be out of date";
  grant_some();
  EXPECT_EQ(std::ranges::adjacent_find(fences, std::greater_equal()), fences.end())
      << "a fence was repeated or decreased";
  EXPECT_EQ(counted.at(2 * grants), counted.at(grants)) << "without the clock, the first lost fence is granted again";
}

// The failover lost one lock, the queue of another, and a counter.
TEST_F(RedisSentinel, HoldersAndWaitersGoOnAfterMasterDied) {
  auto locks = open_with_long_timeout(url());
  auto kept = locks.acquire("kept", {.ttl = 10min});
  expect_replicated("kept");
  cut_off_replica();
  auto lost = locks.acquire("lost", {.ttl = 10min});
  auto other = open_with_long_timeout(url());
  auto waiter = std::async(std::launch::async, [&] { return other.acquire("kept", patient).fence(); });
  EXPECT_TRUE(eventually([&] { return master.command({"ZCARD", "syncguard-queue:kept"}) == "1"; }));

  kill_master();
  EXPECT_TRUE(extends(kept));
  EXPECT_FALSE(kept.lost().stop_requested());
  EXPECT_FALSE(extends(lost));
  EXPECT_TRUE(eventually([&] { return lost.lost().stop_requested(); }));
  EXPECT_GT(other.acquire("lost", patient).fence(), lost.fence());

  // Without polling: its retry delay is a minute.
  EXPECT_TRUE(eventually([&] {
    return answer_of(replica, {"ZCARD", "syncguard-queue:kept"}) == "1";
  })) << "the waiter must join the queue of the new master";
  const auto released_at = std::chrono::steady_clock::now();
  EXPECT_TRUE(kept.release());
  const auto fence_of_waiter = waiter.get();
  EXPECT_LT(std::chrono::steady_clock::now() - released_at, soon) << "the wake-up must come from the new master";
  EXPECT_GT(fence_of_waiter, kept.fence());
}

// How long leases that renew themselves, and a waiter, are without service. A renewal fails until a master is named.
TEST_F(RedisSentinel, RenewalsGoOnThroughFailover) {
  constexpr auto ttl = 12s;
  const Metrics metrics;
  const auto failed_renewals = [&] {
    std::uint64_t count = 0;
    const auto snapshot = metrics.snapshot();
    for (const auto& outcome : snapshot.at(0).renewals) {
      if (outcome.result == EventResult::error) count += outcome.count;
    }
    return count;
  };
  auto locks = open_with_long_timeout(url(), {.metrics = metrics});
  auto kept = locks.acquire("kept", {.ttl = ttl, .auto_extend = true});
  expect_replicated("kept");
  cut_off_replica();
  auto lost = locks.acquire("lost", {.ttl = ttl, .auto_extend = true});
  auto other = open_with_long_timeout(url());
  auto waiter = std::async(std::launch::async, [&] { return other.acquire("kept", patient).fence(); });
  EXPECT_TRUE(eventually([&] { return master.command({"ZCARD", "syncguard-queue:kept"}) == "1"; }));

  const auto start = std::chrono::steady_clock::now();
  const auto print = [start](const char* event) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    std::printf("%4.1f s: %s\n", passed.count(), event);
  };
  master.kill();
  EXPECT_TRUE(eventually([&] { return failed_renewals() >= 2; }));
  print("renewals have failed");
  const auto deadline = kept.expires_at();
  fail_over();
  print("the Sentinel names the new master");
  EXPECT_TRUE(eventually([&] { return answer_of(replica, {"ZCARD", "syncguard-queue:kept"}) == "1"; }));
  print("the waiter is in the queue of the new master");
  EXPECT_TRUE(eventually([&] { return kept.expires_at() > deadline; }));
  print("the replicated lock is renewed");
  EXPECT_TRUE(eventually([&] { return lost.lost().stop_requested(); }));
  print("the holder of the other lock is told");
  EXPECT_LT(std::chrono::steady_clock::now() - start, ttl);
  EXPECT_FALSE(kept.lost().stop_requested());
  EXPECT_TRUE(kept.release());
  EXPECT_GT(waiter.get(), kept.fence());
  print("the waiter has the lock");
}

TEST_F(RedisSentinel, HoldersGoOnWithoutSentinelsUntilMasterDies) {
  Sentinel second(master);
  EXPECT_TRUE(eventually([&] { return sentinel.knows("num-other-sentinels\n1"); }));
  auto locks = open_with_long_timeout(url());
  auto lease = locks.acquire("key", {.ttl = 10min});
  auto held = locks.acquire("held", {.ttl = 10min});
  auto other = open_with_long_timeout(url());
  EXPECT_TRUE(other.is_locked("key"));
  sentinel.kill();
  second.kill();

  EXPECT_TRUE(lease.extend(10min));
  // The connection that listens for wake-ups is a new one: it goes where the other one leads.
  auto waiter = std::async(std::launch::async, [&] { return other.acquire("key", patient).fence(); });
  EXPECT_TRUE(eventually([&] { return master.command({"ZCARD", "syncguard-queue:key"}) == "1"; }));
  EXPECT_TRUE(lease.release());
  EXPECT_GT(waiter.get(), lease.fence());

  master.kill();
  std::optional<LockError> error;
  EXPECT_TRUE(eventually([&] {
    error = error_of([&] { (void)held.extend(10min); });
    // The first one may have been sent before the connection was closed.
    return error && !error->in_doubt();
  }));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_TRUE(error->retryable());
  EXPECT_THAT(error->what(), HasSubstr("no Sentinel named a master: "));
  EXPECT_FALSE(held.lost().stop_requested()) << "it may still be held: its deadline has not passed";
  (void)held.detach();
}

TEST_F(RedisSentinel, MinReplicasAppliesToNewMaster) {
  for (auto* server : {&master, &replica}) server->command({"ACL", "SETUSER", RedisServer::user, "+wait"});
  auto locks = open_with_long_timeout(url("&min_replicas=1&replica_timeout=1s"));
  auto lease = locks.acquire("key", {.ttl = 10min, .wait = {.timeout = 60s}});
  kill_master();
  std::optional<LockError> error;
  EXPECT_TRUE(eventually([&] {
    error = error_of([&] { (void)lease.extend(10min); });
    return error && std::string(error->what()).find("0 of 1") != std::string::npos;
  })) << error.value().what();
  EXPECT_FALSE(lease.lost().stop_requested());

  master.start();
  EXPECT_TRUE(eventually([&] {
    return answer_of(master, {"REPLICAOF", "127.0.0.1", std::to_string(replica.port())}).starts_with("OK");
  }));
  EXPECT_TRUE(extends(lease));
  EXPECT_TRUE(lease.release());
}

TEST_F(RedisSentinel, HangingMasterIsLeftAfterSilence) {
  const std::string impatient = "&silence_timeout=2s&connect_timeout=2s";
  auto locks = open_with_long_timeout(url(impatient), {.operation_timeout = 60s});
  auto lease = locks.acquire("key", {.ttl = 10min, .wait = {.timeout = 60s}});
  auto other = open_with_long_timeout(url(impatient));
  // Its request to join the queue may be unanswered when the master stops: then it joins with its next retry.
  constexpr AcquireOptions waits{.wait = {.timeout = 60s, .max_delay = 1s}};
  auto waiter = std::async(std::launch::async, [&] { return other.acquire("key", waits).fence(); });
  EXPECT_TRUE(eventually([&] { return replica.command({"ZCARD", "syncguard-queue:key"}) == "1"; }));
  master.pause();
  const auto paused_at = std::chrono::steady_clock::now();
  const auto error = error_of([&] { (void)lease.extend(10min); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_THAT(error->what(), HasSubstr("silence_timeout"));
  EXPECT_LT(std::chrono::steady_clock::now() - paused_at, 30s) << "not only when the operation's time is over";

  sentinel.take_silent_master_for_dead();
  expect_failover();
  EXPECT_TRUE(extends(lease));
  // Still hanging: nothing of this reaches it.
  EXPECT_TRUE(lease.release());
  EXPECT_GT(waiter.get(), lease.fence());
  master.resume();
}

// A Sentinel that was stopped for longer than its trigger does the same.
TEST_F(RedisSentinel, SentinelInTiltDelaysFailover) {
  const auto in_tilt = [&](const std::string& yes) {
    return eventually([&] {
      return sentinel.command({"INFO", "sentinel"}).find("sentinel_tilt:" + yes) != std::string::npos;
    });
  };
  auto locks = open_with_long_timeout(url());
  auto lease = locks.acquire("key", {.ttl = 10min});
  expect_replicated();
  sentinel.command({"SENTINEL", "DEBUG", "TILT-TRIGGER", "1"});
  EXPECT_TRUE(in_tilt("1"));
  EXPECT_TRUE(open_with_long_timeout(url()).is_locked("key")) << "it still names the master";
  EXPECT_EQ(verdict_on(open_with_long_timeout(url()).admin().diagnose(), "Sentinels"),
            "warning: 1 in TILT mode: until it ends, they do not fail over");

  master.kill();
  sentinel.take_silent_master_for_dead();
  expect_error(ErrorCode::service_unavailable, [&] { (void)lease.extend(10min); });
  EXPECT_EQ(sentinel.master(), as_master(master));
  sentinel.command({"SENTINEL", "DEBUG", "TILT-TRIGGER", "600000"});
  sentinel.command({"SENTINEL", "DEBUG", "TILT-PERIOD", "100"});
  EXPECT_TRUE(in_tilt("0"));
  expect_failover();
  EXPECT_TRUE(extends(lease));
  EXPECT_TRUE(lease.release());
}

TEST_F(RedisSentinel, FailoverNeedsMajorityOfSentinels) {
  Sentinel second(master);
  Sentinel third(master);
  for (auto* one : {&sentinel, &second, &third}) {
    EXPECT_TRUE(eventually([&] { return one->knows("num-other-sentinels\n2"); }));
  }
  // The first one is cut off, and costs time only.
  const auto addresses = address_of(third.port()) + "," + address_of(sentinel.port());
  auto locks = open_with_long_timeout(sentinel_url(addresses, "&sentinel_timeout=500ms"));
  auto lease = locks.acquire("key", {.ttl = 10min, .wait = {.timeout = 60s}});
  expect_replicated();
  second.pause();
  third.pause();
  master.kill();
  // How soon it tries again.
  sentinel.command({"SENTINEL", "SET", "mymaster", "failover-timeout", "3000"});
  sentinel.take_silent_master_for_dead();
  EXPECT_TRUE(eventually([&] { return sentinel.knows("failover_in_progress"); }));
  EXPECT_EQ(sentinel.master(), as_master(master)) << "one of three must not decide";
  const auto error = error_of([&] { (void)lease.extend(10min); });
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->retryable()) << error->what();

  second.resume();
  expect_failover();
  EXPECT_TRUE(extends(lease));
  EXPECT_TRUE(lease.release());
  EXPECT_GT(locks.acquire("key", {.wait = {.timeout = 60s}}).fence(), lease.fence());
  third.resume();
}

TEST_F(RedisSentinel, LeavesMasterThatBecameReplica) {
  auto locks = open_with_long_timeout(url());
  auto lease = locks.acquire("key", {.ttl = 10min});
  auto other = open_with_long_timeout(url());
  auto waiter = std::async(std::launch::async, [&] { return other.acquire("key", patient).fence(); });
  EXPECT_TRUE(eventually([&] { return replica.command({"ZCARD", "syncguard-queue:key"}) == "1"; }));
  // The Sentinel refuses until it has heard of the replica again.
  EXPECT_TRUE(eventually([&] { return answer_of(sentinel, {"SENTINEL", "FAILOVER", "mymaster"}) == "OK"; }));
  expect_failover();
  EXPECT_TRUE(eventually([&] { return answer_of(master, {"ROLE"}).starts_with("slave"); }));
  EXPECT_TRUE(extends(lease));
  (void)locks.acquire("after the failover", patient).detach();
  EXPECT_EQ(replica.command({"EXISTS", "syncguard:after the failover"}), "1");
  EXPECT_TRUE(lease.release());
  EXPECT_GT(waiter.get(), lease.fence());
}

TEST_F(RedisSentinel, DeadSilentAndWrongSentinelsOnlyDelay) {
  const LoopbackSocket dead;
  const FakeRedis silent({.completes_handshake = false});
  const FakeRedis wrong({.answer = naming(replica)});
  const FakeRedis absurd({.answer = ":1\r\n"});
  const auto addresses = address_of(dead.port()) + "," + address_of(silent.port()) + "," + address_of(wrong.port()) +
                         "," + address_of(absurd.port());
  const auto error = error_of(
      [&] { (void)open_with_long_timeout(sentinel_url(addresses, "&sentinel_timeout=200ms")).try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_THAT(error->what(), HasSubstr("read-only replica"));

  // A busy machine may miss the short timeout for the last Sentinel, too: then the acquire tries again.
  auto locks =
      open_with_long_timeout(sentinel_url(addresses + "," + address_of(sentinel.port()), "&sentinel_timeout=500ms"));
  const auto lease = locks.acquire("key", {.wait = {.timeout = 60s}});
  EXPECT_EQ(master.command({"EXISTS", "syncguard:key"}), "1");
}

TEST_F(RedisSentinel, LearnsOfOtherSentinels) {
  Sentinel second(master);
  EXPECT_TRUE(eventually([&] { return sentinel.knows("num-other-sentinels\n1"); }));
  EXPECT_TRUE(eventually([&] { return second.knows("num-other-sentinels\n1"); }));
  auto locks = open_with_long_timeout(url());
  (void)locks.is_locked("key");
  sentinel.kill();
  master.command({"CLIENT", "KILL", "TYPE", "normal"});
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }));
}

TEST_F(RedisSentinel, ReportsWhatIsWrong) {
  const auto error_with = [](const std::string& url) {
    return error_of([&] { (void)open_with_long_timeout(url).try_acquire("key"); }).value();
  };
  const auto real = address_of(sentinel.port());
  const auto unknown = error_with("redis+sentinel://" + real + "/another?sentinel_timeout=20s");
  EXPECT_EQ(unknown.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(unknown.what(), HasSubstr("know no master of this name"));
  const auto no_sentinel = error_with(sentinel_url(address_of(master.port())));
  EXPECT_EQ(no_sentinel.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(no_sentinel.what(), HasSubstr("not a Sentinel"));
  // The user of the servers is unknown to the Sentinel.
  for (const auto& user : {std::string(), credentials}) {
    const auto no_server = error_with("redis://" + user + real);
    EXPECT_EQ(no_server.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(no_server.what(), HasSubstr("this is a Redis Sentinel, not a server: write redis+sentinel://"));
  }
  const LoopbackSocket dead;
  EXPECT_EQ(error_with(sentinel_url(address_of(dead.port()))).code(), ErrorCode::service_unavailable);
  EXPECT_EQ(error_with(sentinel_url(real, "&sentinel_password=wrong")).code(), ErrorCode::auth_failed);
  // The master's password is not the Sentinel's.
  const auto wrong_user = error_with("redis+sentinel://locker:wrong@" + real + "/mymaster?sentinel_timeout=20s");
  EXPECT_EQ(wrong_user.code(), ErrorCode::auth_failed);
}

TEST_F(RedisSentinel, HasOwnCredentials) {
  sentinel.command({"ACL", "SETUSER", "guard", "on", ">secret", "&*", "-@all", "+sentinel|get-master-addr-by-name"});
  sentinel.command({"ACL", "SETUSER", "default", "off"});
  const auto lease = open_with_long_timeout(url("&sentinel_username=guard&sentinel_password=secret")).acquire("key");
  EXPECT_EQ(master.command({"EXISTS", "syncguard:key"}), "1");
}

TEST(RedisSentinelTls, EncryptsAllConnections) {
  RedisServer master({.tls = true});
  const Sentinel sentinel(master, 1, {.tls = true, .configuration = {"tls-replication yes"}});
  // Each server has an authority of its own.
  auto both = open_with_long_timeout("rediss+sentinel://" + credentials + address_of(sentinel.port()) +
                                     "/mymaster?sentinel_timeout=20s&verify=false");
  EXPECT_TRUE(both.acquire("key"));
  auto verifying = open_with_long_timeout("rediss+sentinel://" + credentials + address_of(sentinel.port()) +
                                          "/mymaster?sentinel_timeout=20s&ca_file=" + sentinel.file("ca.crt").string());
  EXPECT_EQ(error_of([&] { (void)verifying.try_acquire("key"); }).value().code(), ErrorCode::auth_failed);
}

TEST(RedisSentinelTls, FailoverKeepsEncryption) {
  const TemporaryFolder certificates;
  make_certificates(certificates.path());
  const RedisServer::Options tls{
      .tls = true, .certificates = certificates.path(), .configuration = {"tls-replication yes"}};
  RedisPair servers(tls, tls);
  Sentinel sentinel(servers.master, 1, tls);
  EXPECT_TRUE(eventually([&] { return sentinel.knows("num-slaves\n1"); }));

  const auto url =
      "rediss+sentinel://" + credentials + address_of(sentinel.port()) +
      "/mymaster?sentinel_timeout=20s&connect_timeout=20s&ca_file=" + (certificates.path() / "ca.crt").string();
  auto locks = open_with_long_timeout(url);
  auto lease = locks.acquire("key", {.ttl = 10min});
  EXPECT_TRUE(eventually([&] { return servers.replica.command({"EXISTS", "syncguard:key"}) == "1"; }));
  servers.master.kill();
  sentinel.take_silent_master_for_dead();
  EXPECT_TRUE(extends(lease));
  EXPECT_TRUE(lease.release());
  EXPECT_GT(locks.acquire("key").fence(), lease.fence());
}

TEST_F(RedisSentinel, DiagnosisAsksAllSentinels) {
  const auto findings = open_with_long_timeout(url()).admin().diagnose();
  EXPECT_THAT(verdict_on(findings, "Sentinels"), StartsWith("warning: only 1"));
  EXPECT_THAT(verdict_on(findings, "Sentinel quorum"), StartsWith("fine"));
  EXPECT_THAT(verdict_on(findings, "min-replicas-to-write"), StartsWith("warning: not set"));
  EXPECT_THAT(verdict_on(findings, "replication"), StartsWith("warning: a master with 1 replicas"));

  Sentinel second(master, 3);
  Sentinel third(master, 1);
  for (auto* one : {&sentinel, &second, &third}) {
    EXPECT_TRUE(eventually([&] { return one->knows("num-other-sentinels\n2"); }));
  }
  master.command({"CONFIG", "SET", "min-replicas-to-write", "1"});
  auto locks = open_with_long_timeout(url());
  expect_fine(locks, {"Sentinels", "Sentinel quorum", "min-replicas-to-write"});
  // The others are learned from the first.
  EXPECT_EQ(verdict_on(locks.admin().diagnose(), "Sentinels"), "fine: all 3 name the same master");

  const FakeRedis wrong({.answer = naming(replica)});
  const auto with_wrong = sentinel_url(address_of(sentinel.port()) + "," + address_of(wrong.port()));
  EXPECT_THAT(verdict_on(open_with_long_timeout(with_wrong).admin().diagnose(), "Sentinels"),
              StartsWith("failure: name different masters: "));

  third.kill();
  second.command({"SENTINEL", "SET", "mymaster", "down-after-milliseconds", "100"});
  std::string agreement;
  std::string quorum;
  EXPECT_TRUE(eventually([&] {
    const auto now = open_with_long_timeout(url()).admin().diagnose();
    agreement = verdict_on(now, "Sentinels");
    quorum = verdict_on(now, "Sentinel quorum");
    return agreement.starts_with("warning: not all answered: ") && quorum.starts_with("failure: cannot be reached: ");
  })) << agreement
      << quorum;
}

}  // namespace
}  // namespace syncguard::testing
