#include "core/findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Verdict = Finding::Verdict;

TEST(Findings, ClockSkewIsWarnedOfAndThenFails) {
  EXPECT_EQ(skew(0ms).verdict, Verdict::fine);
  EXPECT_EQ(skew(199ms).verdict, Verdict::fine);
  EXPECT_EQ(skew(200ms).verdict, Verdict::warning);
  EXPECT_EQ(skew(-200ms).verdict, Verdict::warning);
  EXPECT_EQ(skew(499ms).verdict, Verdict::warning);
  EXPECT_EQ(skew(500ms).verdict, Verdict::failure);
  EXPECT_EQ(skew(-500ms).verdict, Verdict::failure);
  EXPECT_THAT(skew(300ms).found, HasSubstr("300 ms ahead of"));
  EXPECT_THAT(skew(-300ms).found, HasSubstr("300 ms behind"));
}

TEST(Findings, ASlowStoreIsWarnedOf) {
  EXPECT_EQ(latency(99ms).verdict, Verdict::fine);
  EXPECT_EQ(latency(100ms).verdict, Verdict::warning);
  EXPECT_EQ(latency(1500us).found, "1.5 ms per request");
}

TEST(Findings, WhatKeepsUsFromLookingIsAFailure) {
  const auto unreachable = obstacle(LockError(ErrorCode::service_unavailable, "nobody there"));
  EXPECT_EQ(unreachable.verdict, Verdict::failure);
  EXPECT_EQ(unreachable.check, "reachable");
  EXPECT_EQ(unreachable.found, "nobody there");
  EXPECT_EQ(obstacle(LockError(ErrorCode::network_timeout, "x")).check, "reachable");
  EXPECT_EQ(obstacle(LockError(ErrorCode::auth_failed, "x")).check, "authorised");
  EXPECT_EQ(obstacle(LockError(ErrorCode::invalid_argument, "x")).check, "configuration");
}

TEST(Findings, OnlyWhatIsNotFineNeedsAdvice) {
  EXPECT_TRUE(fine("a", "b").advice.empty());
  EXPECT_TRUE(latency(1ms).advice.empty());
  for (const auto& finding : {skew(600ms), latency(200ms), obstacle(LockError(ErrorCode::internal, "x"))}) {
    EXPECT_FALSE(finding.advice.empty()) << finding.check;
  }
}

}  // namespace
}  // namespace syncguard::core
