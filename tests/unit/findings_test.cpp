#include "core/findings.hpp"
#include "core/causes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Verdict = Finding::Verdict;

TEST(Findings, ClockSkewIsAWarningAndNeverAFailure) {
  EXPECT_EQ(skew(0ms).verdict, Verdict::fine);
  EXPECT_EQ(skew(199ms).verdict, Verdict::fine);
  EXPECT_EQ(skew(200ms).verdict, Verdict::warning);
  EXPECT_EQ(skew(-200ms).verdict, Verdict::warning);
  EXPECT_EQ(skew(-1h).verdict, Verdict::warning);
  EXPECT_THAT(skew(300ms).found, HasSubstr("300 ms ahead of"));
  EXPECT_THAT(skew(-300ms).found, HasSubstr("300 ms behind"));
  LatencyCheck latency_check;
  for (int i = 0; i < LatencyCheck::requests; ++i) latency_check.add(1ms, 1h);
  std::vector<Finding> findings;
  latency_check.report(findings);
  for (const auto& finding : findings) EXPECT_NE(finding.verdict, Verdict::failure) << finding.check;
}

TEST(Findings, SlowStoreIsAWarning) {
  EXPECT_EQ(latency(99ms).verdict, Verdict::fine);
  EXPECT_EQ(latency(100ms).verdict, Verdict::warning);
  EXPECT_EQ(latency(1500us).found, "1.5 ms per request");
}

TEST(Findings, UnreachableStoreIsAFailure) {
  const auto store_unreachable = unreachable(LockError(ErrorCode::service_unavailable, "connection refused"));
  EXPECT_EQ(store_unreachable.verdict, Verdict::failure);
  EXPECT_EQ(store_unreachable.check, "reachable");
  EXPECT_EQ(store_unreachable.found, "connection refused");
  const auto because = with_cause(ErrorCode::service_unavailable, "it cannot be reached", "no TLS\n\tthere\n");
  EXPECT_EQ(unreachable(because).found, "it cannot be reached: no TLS there");
  EXPECT_EQ(unreachable(LockError(ErrorCode::network_timeout, "x")).check, "reachable");
  EXPECT_EQ(unreachable(LockError(ErrorCode::auth_failed, "x")).check, "authorized");
  EXPECT_EQ(unreachable(LockError(ErrorCode::invalid_argument, "x")).check, "configuration");
}

TEST(Findings, EveryProblemHasAdvice) {
  EXPECT_TRUE(fine("a", "b").advice.empty());
  EXPECT_TRUE(latency(1ms).advice.empty());
  for (const auto& finding : {skew(600ms), latency(200ms), unreachable(LockError(ErrorCode::internal, "x"))}) {
    EXPECT_FALSE(finding.advice.empty()) << finding.check;
  }
}

}  // namespace
}  // namespace syncguard::core
