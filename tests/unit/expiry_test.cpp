#include "core/expiry.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

namespace syncguard::core {
namespace {

using namespace std::chrono_literals;
using Time = std::chrono::steady_clock::time_point;

TEST(CleanupPace, AllowsOneCleanupPerSecond) {
  CleanupPace pace;
  const Time start(1h);
  EXPECT_TRUE(pace.may_clean_up(start));
  EXPECT_FALSE(pace.may_clean_up(start));
  EXPECT_FALSE(pace.may_clean_up(start + 999ms));
  EXPECT_TRUE(pace.may_clean_up(start + 1s));
  EXPECT_FALSE(pace.may_clean_up(start + 1999ms)) << "the second counts from the previous cleanup";
  EXPECT_TRUE(pace.may_clean_up(start + 1h));
}

TEST(CleanupPace, AllowsOneThreadAtATime) {
  constexpr int threads = 4;
  CleanupPace pace;
  for (int round = 1; round <= 200; ++round) {
    std::atomic<int> allowed{0};
    std::barrier begin(threads);
    std::vector<std::thread> callers;
    for (int i = 0; i < threads; ++i) {
      callers.emplace_back([&] {
        begin.arrive_and_wait();
        if (pace.may_clean_up(Time(1h * round))) ++allowed;
      });
    }
    for (auto& caller : callers) caller.join();
    ASSERT_EQ(allowed, 1);
  }
}

constexpr Timestamp answered_at{1'000'000ms};

TEST(ClockSkew, IsZeroIfServerTimeLiesWithinRequest) {
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at), 0ms);
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at - 50ms), 0ms);
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at - 100ms), 0ms);
  EXPECT_EQ(clock_skew(answered_at, 0ms, answered_at), 0ms);
}

// As of a broken or hostile server.
TEST(ClockSkew, IsLargeIfServerTimeIsImpossible) {
  EXPECT_LT(clock_skew(answered_at, 100ms, Timestamp::max()), -1000h);
  EXPECT_GE(clock_skew(answered_at, 100ms, Timestamp::min()), 900s);
}

TEST(ClockSkew, IsDistanceOutsideRequest) {
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at + 1ms), -1ms) << "this host's clock is behind";
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at + 700ms), -700ms);
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at - 101ms), 1ms) << "this host's clock is ahead";
  EXPECT_EQ(clock_skew(answered_at, 100ms, answered_at - 800ms), 700ms);
}

}  // namespace
}  // namespace syncguard::core
