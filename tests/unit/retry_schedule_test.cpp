#include "core/retry_schedule.hpp"

#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using namespace std::chrono_literals;

TEST(RetrySchedule, DoublesFromTheFirstFailureOn) {
  const WaitOptions options{.jitter = Jitter::none};
  EXPECT_EQ(retry_delay(options, 1, 0.5), 100ms);
  EXPECT_EQ(retry_delay(options, 2, 0.5), 200ms);
  EXPECT_EQ(retry_delay(options, 7, 0.5), 6400ms);
}

TEST(RetrySchedule, NeverExceedsTheLongestDelay) {
  const WaitOptions options{.jitter = Jitter::none};
  EXPECT_EQ(retry_delay(options, 8, 0.5), 10s);
  EXPECT_EQ(retry_delay(options, 10'000, 0.5), 10s);
  EXPECT_EQ(retry_delay(WaitOptions{.max_delay = 150ms, .jitter = Jitter::none}, 2, 0), 150ms);
}

TEST(RetrySchedule, SurvivesTheExtremes) {
  const WaitOptions nothing{.retry_delay = 0ms};
  EXPECT_EQ(retry_delay(nothing, 2000, 0.5), 0ms);
  const WaitOptions everything{.retry_delay = std::chrono::milliseconds::max(),
                               .max_delay = std::chrono::milliseconds::max(),
                               .jitter = Jitter::none};
  EXPECT_EQ(retry_delay(everything, 2000, 0.5), std::chrono::hours(24 * 365));
}

TEST(RetrySchedule, StaysTheSameWithFixedBackoff) {
  const WaitOptions options{.backoff = Backoff::fixed, .jitter = Jitter::none};
  EXPECT_EQ(retry_delay(options, 1, 0), 100ms);
  EXPECT_EQ(retry_delay(options, 9, 0), 100ms);
}

TEST(RetrySchedule, EqualJitterSpreadsOverTheUpperHalf) {
  const WaitOptions options;
  EXPECT_EQ(retry_delay(options, 2, 0.0), 100ms);
  EXPECT_EQ(retry_delay(options, 2, 0.5), 150ms);
  EXPECT_EQ(retry_delay(options, 2, 0.75), 175ms);
}

TEST(RetrySchedule, FullJitterSpreadsOverAll) {
  const WaitOptions options{.jitter = Jitter::full};
  EXPECT_EQ(retry_delay(options, 2, 0.0), 0ms);
  EXPECT_EQ(retry_delay(options, 2, 0.25), 50ms);
}

}  // namespace
}  // namespace syncguard::core
