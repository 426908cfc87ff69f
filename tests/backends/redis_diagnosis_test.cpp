// What a Redis server says about its fitness for locks.

#include "eventually.hpp"
#include "findings.hpp"
#include "patience.hpp"
#include "servers/fake_redis.hpp"
#include "servers/redis_server.hpp"

#include <gmock/gmock.h>

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(RedisDiagnosis, ADurableServerIsFine) {
  RedisServer server({.durable = true, .configuration = {"notify-keyspace-events KEA"}});
  for (const auto& url : {server.plain_url(), server.url()}) {
    auto locks = open_patiently(url);
    expect_fine(locks, {"reachable", "latency", "clock skew", "server", "replication", "eviction", "cluster",
                        "keyspace events", "authorised", "subscribing"});
  }
  const auto findings = open_patiently(server.plain_url()).diagnose();
  EXPECT_THAT(verdict_on(findings, "persistence"), StartsWith("fine"));
  EXPECT_EQ(verdict_on(findings, "keyspace events"), "fine: on");
  // The user of the tests may not ask how often the file is synchronised.
  EXPECT_THAT(verdict_on(open_patiently(server.url()).diagnose(), "persistence"), HasSubstr("may not be asked"));
  EXPECT_EQ(server.command({"DBSIZE"}), "0") << "nothing is left behind";
}

TEST(RedisDiagnosis, WarnsOfWhatLosesFences) {
  RedisServer server;
  EXPECT_THAT(verdict_on(open_patiently(server.plain_url()).diagnose(), "persistence"), StartsWith("warning: none"));
  server.command({"CONFIG", "SET", "save", "3600 1"});
  EXPECT_THAT(verdict_on(open_patiently(server.plain_url()).diagnose(), "persistence"),
              StartsWith("warning: snapshots"));
  server.command({"CONFIG", "SET", "appendonly", "yes"});
  server.command({"CONFIG", "SET", "appendfsync", "everysec"});
  EXPECT_THAT(verdict_on(open_patiently(server.plain_url()).diagnose(), "persistence"), HasSubstr("everysec"));
}

TEST(RedisDiagnosis, FailsOnAServerThatEvicts) {
  RedisServer server({.configuration = {"maxmemory 100mb", "maxmemory-policy allkeys-lru"}});
  EXPECT_THAT(verdict_on(open_patiently(server.url()).diagnose(), "eviction"), StartsWith("failure: with allkeys-lru"));
  server.command({"CONFIG", "SET", "maxmemory-policy", "volatile-ttl"});
  EXPECT_THAT(verdict_on(open_patiently(server.url()).diagnose(), "eviction"),
              StartsWith("failure: with volatile-ttl a lock"));
  server.command({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  EXPECT_THAT(verdict_on(open_patiently(server.url()).diagnose(), "eviction"), StartsWith("fine"));
}

TEST(RedisDiagnosis, WarnsWhereItCannotReadWhetherTheServerEvicts) {
  // A time, whatever is asked, also where INFO should be.
  const FakeRedis server({.answer = "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"});
  EXPECT_THAT(verdict_on(open(server.url("?operation_timeout=5s")).diagnose(), "eviction"),
              HasSubstr("could not be read"));
}

TEST(RedisDiagnosis, FailsOnWhatCannotBeReachedOrRefuses) {
  RedisServer server;
  const auto port = std::to_string(server.port());
  EXPECT_THAT(verdict_on(open_patiently("redis://locker:wrong@127.0.0.1:" + port).diagnose(), "authorised"),
              StartsWith("failure"));
  server.pause();
  EXPECT_THAT(verdict_on(open(server.url("&operation_timeout=200ms")).diagnose(), "reachable"), StartsWith("failure"));
  server.resume();
  server.kill();
  EXPECT_THAT(verdict_on(open_patiently(server.url()).diagnose(), "reachable"), StartsWith("failure"));
}

TEST(RedisDiagnosis, NamesTheCommandsThatAUserMayNotRun) {
  RedisServer server;
  const auto as_user = [&](const std::vector<std::string>& rights) {
    std::vector<std::string> words = {"ACL", "SETUSER", "limited", "reset", "on", ">secret"};
    words.insert(words.end(), rights.begin(), rights.end());
    server.command(words);
    return open_patiently("redis://limited:secret@127.0.0.1:" + std::to_string(server.port())).diagnose();
  };
  const auto without_incr = as_user({"~*", "&*", "+@all", "-incr", "-del"});
  EXPECT_THAT(verdict_on(without_incr, "authorised"), StartsWith("failure: fails: INCR, DEL"));
  const auto other_keys = as_user({"~other:*", "&*", "+@all"});
  EXPECT_THAT(verdict_on(other_keys, "authorised"), StartsWith("failure"));
  const auto without_channels = as_user({"~*", "resetchannels", "+@all"});
  EXPECT_THAT(verdict_on(without_channels, "channels"), StartsWith("warning: fails: PUBLISH"));
  EXPECT_THAT(verdict_on(without_channels, "subscribing"), StartsWith("warning"));
  const auto without_scripts = as_user({"~*", "&*", "+@all", "-eval", "-evalsha"});
  EXPECT_THAT(verdict_on(without_scripts, "authorised"), StartsWith("failure"));
  const auto without_info = as_user({"~*", "&*", "+@all", "-info", "-config"});
  EXPECT_THAT(verdict_on(without_info, "server"), StartsWith("warning: INFO is refused"));
  EXPECT_THAT(verdict_on(without_info, "authorised"), StartsWith("fine"));
}

TEST(RedisDiagnosis, TellsReplicasFromMasters) {
  RedisServer master;
  RedisServer replica;
  replica.command({"REPLICAOF", "127.0.0.1", std::to_string(master.port())});
  EXPECT_THAT(verdict_on(open_patiently(replica.plain_url()).diagnose(), "replication"),
              StartsWith("failure: this is a replica"));
  std::string of_master;
  EXPECT_TRUE(eventually([&] {
    of_master = verdict_on(open_patiently(master.plain_url()).diagnose(), "replication");
    return of_master.starts_with("warning: a master with 1 replicas");
  })) << of_master;
}

TEST(RedisDiagnosis, FailsOnAClusterWithoutAHashTag) {
  RedisServer server({.cluster = true});
  EXPECT_THAT(verdict_on(open_patiently(server.plain_url()).diagnose(), "configuration"), HasSubstr("hash tag"));
}

}  // namespace
}  // namespace syncguard::testing
