// diagnose() on Redis.

#include "servers/fake_redis.hpp"
#include "servers/redis_server.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/long_timeouts.hpp"

#include <gmock/gmock.h>

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(RedisDiagnosis, DurableServerPasses) {
  RedisServer server({.durable = true, .configuration = {"notify-keyspace-events KEA"}});
  for (const auto& url : {server.plain_url(), server.url()}) {
    auto locks = open_with_long_timeout(url);
    expect_fine(locks, {"reachable", "latency", "clock skew", "server", "replication", "eviction", "cluster",
                        "keyspace events", "authorized", "fences", "fence counters", "subscribing"});
  }
  const auto findings = open_with_long_timeout(server.plain_url()).admin().diagnose();
  EXPECT_THAT(verdict_on(findings, "persistence"), StartsWith("fine"));
  EXPECT_EQ(verdict_on(findings, "keyspace events"), "fine: on");
  // The user `locker` may not read the setting appendfsync.
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.url()).admin().diagnose(), "persistence"),
              HasSubstr("cannot read"));
  EXPECT_EQ(server.command({"DBSIZE"}), "0") << "the diagnosis must leave no keys behind";
}

TEST(RedisDiagnosis, WarnsAboutSettingsThatLoseFences) {
  RedisServer server;
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.plain_url()).admin().diagnose(), "persistence"),
              StartsWith("warning: none"));
  server.command({"CONFIG", "SET", "save", "3600 1"});
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.plain_url()).admin().diagnose(), "persistence"),
              StartsWith("warning: snapshots"));
  server.command({"CONFIG", "SET", "appendonly", "yes"});
  server.command({"CONFIG", "SET", "appendfsync", "everysec"});
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.plain_url()).admin().diagnose(), "persistence"),
              HasSubstr("everysec"));
}

TEST(RedisDiagnosis, FailsIfServerEvicts) {
  RedisServer server({.configuration = {"maxmemory 100mb", "maxmemory-policy allkeys-lru"}});
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.url()).admin().diagnose(), "eviction"),
              StartsWith("failure: with allkeys-lru"));
  server.command({"CONFIG", "SET", "maxmemory-policy", "volatile-ttl"});
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.url()).admin().diagnose(), "eviction"),
              StartsWith("failure: with volatile-ttl a lock"));
  server.command({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.url()).admin().diagnose(), "eviction"), StartsWith("fine"));
}

TEST(RedisDiagnosis, WarnsIfEvictionPolicyIsUnreadable) {
  // Answers every command with a time, including INFO.
  const FakeRedis server({.answer = "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"});
  EXPECT_THAT(verdict_on(open(server.url("?operation_timeout=5s")).admin().diagnose(), "eviction"),
              HasSubstr("cannot read"));
}

TEST(RedisDiagnosis, FailsIfServerShowsImpossibleTime) {
  const FakeRedis server({.answer = "*2\r\n$19\r\n9223372036854775807\r\n$1\r\n0\r\n"});
  EXPECT_THAT(verdict_on(open(server.url("?operation_timeout=5s")).admin().diagnose(), "reachable"),
              StartsWith("failure"));
}

TEST(RedisDiagnosis, FailsIfUnreachableOrUnauthorized) {
  RedisServer server;
  const auto port = std::to_string(server.port());
  EXPECT_THAT(
      verdict_on(open_with_long_timeout("redis://locker:wrong@127.0.0.1:" + port).admin().diagnose(), "authorized"),
      StartsWith("failure"));
  server.pause();
  EXPECT_THAT(verdict_on(open(server.url("&operation_timeout=200ms")).admin().diagnose(), "reachable"),
              StartsWith("failure"));
  server.resume();
  server.kill();
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.url()).admin().diagnose(), "reachable"), StartsWith("failure"));
}

TEST(RedisDiagnosis, NamesForbiddenCommands) {
  RedisServer server;
  const auto as_user = [&](const std::vector<std::string>& rights) {
    std::vector<std::string> words = {"ACL", "SETUSER", "limited", "reset", "on", ">secret"};
    words.insert(words.end(), rights.begin(), rights.end());
    server.command(words);
    return open_with_long_timeout("redis://limited:secret@127.0.0.1:" + std::to_string(server.port()))
        .admin()
        .diagnose();
  };
  const auto without_incr = as_user({"~*", "&*", "+@all", "-incr", "-del"});
  EXPECT_THAT(verdict_on(without_incr, "authorized"), StartsWith("failure: fails: INCR, DEL"));
  const auto other_keys = as_user({"~other:*", "&*", "+@all"});
  EXPECT_THAT(verdict_on(other_keys, "authorized"), StartsWith("failure"));
  const auto without_channels = as_user({"~*", "resetchannels", "+@all"});
  EXPECT_THAT(verdict_on(without_channels, "channels"), StartsWith("warning: fails: PUBLISH"));
  EXPECT_THAT(verdict_on(without_channels, "subscribing"), StartsWith("warning"));
  const auto without_scripts = as_user({"~*", "&*", "+@all", "-eval", "-evalsha"});
  EXPECT_THAT(verdict_on(without_scripts, "authorized"), StartsWith("failure"));
  const auto without_info = as_user({"~*", "&*", "+@all", "-info", "-config"});
  EXPECT_THAT(verdict_on(without_info, "server"), StartsWith("warning: INFO is rejected"));
  EXPECT_THAT(verdict_on(without_info, "authorized"), StartsWith("fine"));
}

TEST(RedisDiagnosis, DistinguishesReplicasFromMasters) {
  RedisServer master;
  RedisServer replica;
  replica.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
  EXPECT_THAT(verdict_on(open_with_long_timeout(replica.plain_url()).admin().diagnose(), "replication"),
              StartsWith("failure: this is a replica"));
  std::string of_master;
  EXPECT_TRUE(eventually([&] {
    of_master = verdict_on(open_with_long_timeout(master.plain_url()).admin().diagnose(), "replication");
    return of_master.starts_with("warning: a master with 1 replicas");
  })) << of_master;
}

TEST(RedisDiagnosis, ReportsCountersAheadOfClock) {
  RedisServer server;
  auto locks = open_with_long_timeout(server.plain_url("?prefix=a*"));
  EXPECT_EQ(verdict_on(locks.admin().diagnose(), "fence counters"), "fine: none is ahead of the clock");
  for (int i = 0; i < 3; ++i) (void)locks.acquire("key " + std::to_string(i));
  server.command({"SET", "another program's", "50000000000000"});
  server.command({"SET", "ab:fence:ab:key", "50000000000000"});
  EXPECT_EQ(verdict_on(locks.admin().diagnose(), "fence counters"), "fine: none is ahead of the clock");
  server.command({"SET", "a*:fence:a*:key 1", "50000000000001"});
  server.command({"SET", "a*:fence:a*:key 2", "not a counter"});
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "fence counters"),
              StartsWith("warning: ahead of the clock, up to 050000000000001"));
  // Listing locks needs SCAN, too.
  server.command({"ACL", "SETUSER", "locker", "-scan"});
  expect_error(ErrorCode::auth_failed, [&] { (void)open_with_long_timeout(server.url()).admin().list(); });
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.url()).admin().diagnose(), "fence counters"),
              StartsWith("fine: not examined"));
  const auto counting = open_with_long_timeout(server.plain_url("?fences=counter")).admin().diagnose();
  EXPECT_THAT(verdict_on(counting, "fences"), StartsWith("warning: counted only"));
  EXPECT_EQ(verdict_on(counting, "fence counters"), "");
}

TEST(RedisDiagnosis, ComparesClocksOfReplicas) {
  RedisServer master({.configuration = {"repl-diskless-sync-delay 0"}});
  RedisServer replica;
  replica.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
  const auto verdict_is = [&](const std::string& expected) {
    std::string verdict;
    EXPECT_TRUE(eventually([&] {
      verdict = verdict_on(open_with_long_timeout(master.url()).admin().diagnose(), "clocks of replicas");
      return verdict.starts_with(expected);
    })) << verdict;
  };
  verdict_is("fine: within ");
  // The replica stays connected to its master, and refuses this user.
  replica.command({"ACL", "SETUSER", RedisServer::user, "off"});
  verdict_is("warning: not compared, because this host cannot reach 127.0.0.1:" + std::to_string(replica.port()));
}

TEST(RedisDiagnosis, FailsOnClusterWithoutHashTag) {
  RedisServer server({.cluster = true});
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.plain_url()).admin().diagnose(), "configuration"),
              HasSubstr("hash tag"));
}

}  // namespace
}  // namespace syncguard::testing
