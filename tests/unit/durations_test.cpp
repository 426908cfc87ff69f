#include "core/durations.hpp"

#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using namespace std::chrono_literals;

TEST(Duration, ParsesCommonForms) {
  EXPECT_EQ(parse_duration("500ms"), 500ms);
  EXPECT_EQ(parse_duration("30s"), 30s);
  EXPECT_EQ(parse_duration("5m"), 5min);
  EXPECT_EQ(parse_duration("1h30m"), 90min);
  EXPECT_EQ(parse_duration("1h2m3s4ms"), 1h + 2min + 3s + 4ms);
  EXPECT_EQ(parse_duration("1d"), 24h);
  EXPECT_EQ(parse_duration("2d12h"), 60h);
  EXPECT_EQ(parse_duration("0s"), 0s);
}

TEST(Duration, RejectsOtherForms) {
  for (const std::string_view text :
       {"", "5", "s", "5x", "-5s", "5s5m", "5s5s", " 5s", "5 s", "1.5s", "5S", "+5s", "5ms3s", "99999999999999999999h",
        "9999999999999999h", "5h1d", "999999999999999d"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(RetrySchedule, DoublesAfterEachFailure) {
  const WaitOptions options{.jitter = Jitter::none};
  EXPECT_EQ(retry_delay(options, 1, 0.5), 100ms);
  EXPECT_EQ(retry_delay(options, 2, 0.5), 200ms);
  EXPECT_EQ(retry_delay(options, 7, 0.5), 6400ms);
}

TEST(RetrySchedule, NeverExceedsMaxDelay) {
  const WaitOptions options{.jitter = Jitter::none};
  EXPECT_EQ(retry_delay(options, 8, 0.5), 10s);
  EXPECT_EQ(retry_delay(options, 10'000, 0.5), 10s);
  EXPECT_EQ(retry_delay(WaitOptions{.max_delay = 150ms, .jitter = Jitter::none}, 2, 0), 150ms);
}

// Otherwise a waiter would keep a processor and the store busy.
TEST(RetrySchedule, DelayIsAtLeastOneMillisecond) {
  EXPECT_EQ(retry_delay(WaitOptions{.retry_delay = 0ms}, 1, 0.5), 1ms);
  EXPECT_EQ(retry_delay(WaitOptions{.retry_delay = 0ms}, 2000, 0.5), 1ms);
  EXPECT_EQ(retry_delay(WaitOptions{.max_delay = 0ms}, 1, 0.5), 1ms);
  EXPECT_EQ(retry_delay(WaitOptions{.jitter = Jitter::full}, 1, 0), 1ms);
}

TEST(RetrySchedule, HandlesExtremeValues) {
  const WaitOptions everything{.retry_delay = std::chrono::milliseconds::max(),
                               .max_delay = std::chrono::milliseconds::max(),
                               .jitter = Jitter::none};
  EXPECT_EQ(retry_delay(everything, 2000, 0.5), std::chrono::hours(24 * 365));
}

TEST(RetrySchedule, FixedBackoffIsConstant) {
  const WaitOptions options{.backoff = Backoff::fixed, .jitter = Jitter::none};
  EXPECT_EQ(retry_delay(options, 1, 0), 100ms);
  EXPECT_EQ(retry_delay(options, 9, 0), 100ms);
}

TEST(RetrySchedule, EqualJitterCoversUpperHalf) {
  const WaitOptions options;
  EXPECT_EQ(retry_delay(options, 2, 0.0), 100ms);
  EXPECT_EQ(retry_delay(options, 2, 0.5), 150ms);
  EXPECT_EQ(retry_delay(options, 2, 0.75), 175ms);
}

TEST(RetrySchedule, FullJitterCoversWholeRange) {
  const WaitOptions options{.jitter = Jitter::full};
  EXPECT_EQ(retry_delay(options, 2, 0.0), 1ms);
  EXPECT_EQ(retry_delay(options, 2, 0.25), 50ms);
}

}  // namespace
}  // namespace syncguard::core
