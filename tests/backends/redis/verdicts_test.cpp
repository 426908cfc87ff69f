// Verdicts of the diagnosis on given replies and times.

#include "backends/redis/diagnosis.hpp"
#include "support/findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace syncguard::redis {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string verdict_on_clocks(const std::vector<ReplicaClock>& clocks) {
  return syncguard::testing::verdict_on({clocks_of_replicas(clocks)}, "clocks of replicas");
}

std::string verdict_on_replication(const std::string& info, Failover failover) {
  return syncguard::testing::verdict_on({replication(Info(info), failover)}, "replication");
}

TEST(RedisVerdicts, ReplicaClockBehindLetsFencesRepeat) {
  EXPECT_EQ(
      verdict_on_clocks({{.name = "a:1", .ahead = -200ms}}),
      "warning: a:1 is 200 ms behind the master's clock: after a failover to one that is behind, fences can repeat "
      "for that long");
  EXPECT_THAT(verdict_on_clocks({{.name = "a:1", .ahead = -3h}}), StartsWith("warning: a:1 is 10800000 ms behind"));
}

TEST(RedisVerdicts, ReplicaClockAheadEndsLocksEarly) {
  EXPECT_EQ(verdict_on_clocks({{.name = "a:1", .ahead = 200ms}}),
            "warning: a:1 is 200 ms ahead of the master's clock: after a failover to one that is ahead, locks expire "
            "early by that much");
  EXPECT_THAT(
      verdict_on_clocks({{.name = "a:1", .ahead = 1s}, {.name = "b:2", .ahead = -2s}, {.name = "c:3", .ahead = 0ms}}),
      AllOf(StartsWith("warning: a:1 is 1000 ms ahead of the master's clock, b:2 is 2000 ms behind"),
            HasSubstr("fences can repeat"), HasSubstr("expire early"), Not(HasSubstr("c:3"))));
}

TEST(RedisVerdicts, SmallSkewOfReplicaClocksIsFine) {
  EXPECT_EQ(verdict_on_clocks({{.name = "a:1", .ahead = 199ms}, {.name = "b:2", .ahead = -20ms}}),
            "fine: within 199 ms of the master's");
  EXPECT_EQ(verdict_on_clocks({{.name = "a:1", .ahead = -199ms}, {.name = "b:2", .ahead = 0ms}}),
            "fine: within 199 ms of the master's");
}

TEST(RedisVerdicts, UnreadableReplicaClockIsReportedUnlessAnotherIsWrong) {
  const ReplicaClock unreadable{.name = "a:1", .error = "refused"};
  EXPECT_EQ(verdict_on_clocks({unreadable, {.name = "b:2", .ahead = 1ms}}),
            "warning: not compared, because this host cannot reach a:1 (refused)");
  EXPECT_THAT(verdict_on_clocks({unreadable, {.name = "b:2", .ahead = -1s}}),
              StartsWith("warning: b:2 is 1000 ms behind"));
}

TEST(RedisVerdicts, MasterWithoutReplicasIsWarningOnlyWithSentinels) {
  const std::string alone = "role:master\r\nconnected_slaves:0\r\n";
  EXPECT_EQ(verdict_on_replication(alone, Failover::by_others), "fine: a master without replicas");
  EXPECT_EQ(verdict_on_replication(alone, Failover::by_sentinels),
            "warning: a master without replicas: the Sentinels have no server to fail over to");
}

TEST(RedisVerdicts, ReplicasCanLoseLocksAndAreNoMasters) {
  for (const auto failover : {Failover::by_others, Failover::by_sentinels}) {
    EXPECT_THAT(verdict_on_replication("role:master\r\nconnected_slaves:2\r\n", failover),
                StartsWith("warning: a master with 2 replicas: a failover can lose the newest locks"));
    EXPECT_THAT(verdict_on_replication("role:slave\r\nconnected_slaves:0\r\n", failover),
                StartsWith("failure: this is a replica"));
  }
}

}  // namespace
}  // namespace syncguard::redis
