#include "core/clock_skew.hpp"

#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using namespace std::chrono_literals;

constexpr Timestamp answered_at{1'000'000ms};

TEST(ClockSkew, IsNoneWhereTheServerMayHaveLookedInBetween) {
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at), 0ms);
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at - 50ms), 0ms);
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at - 100ms), 0ms);
  EXPECT_EQ(clock_skew(answered_at, 0ms, answered_at), 0ms);
}

TEST(ClockSkew, IsWhatExceedsThat) {
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at + 1ms), -1ms) << "behind";
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at + 700ms), -700ms);
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at - 101ms), 1ms) << "ahead";
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at - 800ms), 700ms);
}

TEST(ClockSkew, ASlowAnswerChangesNothing) {
  EXPECT_EQ(clock_skew(answered_at, 2000ms, answered_at - 1500ms, 1300ms), 1300ms);
  EXPECT_EQ(clock_skew(answered_at, 2000ms, answered_at + 200ms, -700ms), -700ms);
  EXPECT_EQ(clock_skew(answered_at, 10ms, answered_at - 5ms, 1300ms), 5ms) << "a fast one tells that it was mended";
}

}  // namespace
}  // namespace syncguard::core
