#include "backends/firestore/clock_skew.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace syncguard::firestore {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using ::testing::HasSubstr;

// Times are counted from a moment of Firestore's clock.
constexpr Timestamp start{1'700'000'000'000ms};
constexpr Timestamp firestore_at(nanoseconds time) { return start + std::chrono::floor<milliseconds>(time); }
constexpr BootClock::time_point boot_at(nanoseconds time) { return BootClock::time_point(1000h + time); }
// A reading of a host's clock that is this far ahead.
constexpr ClockReading reading_at(nanoseconds time, milliseconds ahead) {
  return {.time = firestore_at(time) + ahead, .before = boot_at(time), .after = boot_at(time)};
}

TEST(FirestoreClockSkew, IsUnknownBeforeFirstReply) {
  const ClockComparison clocks;
  EXPECT_FALSE(clocks.skew_at(reading_at(0ms, 0ms)));
  const HostTime time{.now = start, .skew = std::nullopt};
  EXPECT_FALSE(time.is_reliable());
  EXPECT_FALSE(time.is_wrong()) << "a reply may show that it is right";
  EXPECT_THAT(unreliable_clock(time).what(), HasSubstr("contain no time"));
}

TEST(FirestoreClockSkew, RangeOfOneReplyIsAsWideAsItsRoundTrip) {
  // Firestore read its clock 80 ms after the request was sent and 20 ms before the reply arrived.
  ClockComparison clocks;
  clocks.add(boot_at(0ms), boot_at(100ms), firestore_at(80ms));
  const auto range = clocks.skew_at(reading_at(100ms, 30ms)).value();
  // 1 ms for the server's rounding, and 1 ms of drift during the round trip.
  EXPECT_EQ(range.least, 30ms - 80ms - 2ms);
  EXPECT_EQ(range.most, 30ms + 20ms + 1ms);
  EXPECT_EQ(range.certain(), 0ms);
  EXPECT_EQ(range.largest(), 52ms);
  EXPECT_EQ(range.largest_lag(), 52ms);
}

TEST(FirestoreClockSkew, RepliesAreIntersected) {
  ClockComparison clocks;
  clocks.add(boot_at(0ms), boot_at(900ms), firestore_at(890ms));
  clocks.add(boot_at(900ms), boot_at(1800ms), firestore_at(910ms));
  const auto range = clocks.skew_at(reading_at(1800ms, 300ms)).value();
  EXPECT_GE(range.least, 300ms - 10ms - 5ms);
  EXPECT_LE(range.least, 300ms);
  EXPECT_GE(range.most, 300ms);
  EXPECT_LE(range.most, 300ms + 10ms + 5ms);
}

TEST(FirestoreClockSkew, OldRangeWidensByDrift) {
  ClockComparison clocks;
  clocks.add(boot_at(0ms), boot_at(0ms), firestore_at(0ms));
  for (const auto drift : {0ms, 1ms, 100ms, 1000ms}) {
    const auto range = clocks.skew_at(reading_at(drift * 1000, 0ms)).value();
    EXPECT_EQ(range.most, drift);
    EXPECT_EQ(range.least, -drift - 1ms);
  }
  // So a slow reply does not change a range that is recent, but replaces an old one.
  auto later = clocks;
  later.add(boot_at(10s), boot_at(12s), firestore_at(11s));
  EXPECT_EQ(later.skew_at(reading_at(12s, 0ms))->largest(), 13ms);
  later = clocks;
  later.add(boot_at(3600s), boot_at(3602s), firestore_at(3601s));
  EXPECT_EQ(later.skew_at(reading_at(3602s, 0ms))->largest(), 1003ms);
}

TEST(FirestoreClockSkew, ReplyThatContradictsOldRangeReplacesIt) {
  ClockComparison clocks;
  clocks.add(boot_at(0ms), boot_at(10ms), firestore_at(5ms));
  // The machine was paused for 700 ms, and its clocks with it.
  clocks.add(boot_at(20ms), boot_at(30ms), firestore_at(725ms));
  const auto range = clocks.skew_at({.time = firestore_at(30ms), .before = boot_at(30ms), .after = boot_at(30ms)});
  EXPECT_NEAR(static_cast<double>(range->certain().count()), -700, 10);
  EXPECT_LE(range->most - range->least, 15ms);
}

TEST(FirestoreClockSkew, ClockThatIsSetShowsWithoutAReply) {
  ClockComparison clocks;
  clocks.add(boot_at(0ms), boot_at(10ms), firestore_at(5ms));
  for (const auto step : {-700ms, 0ms, 700ms}) {
    const auto range = clocks.skew_at(reading_at(1s, step)).value();
    EXPECT_LE(range.least, step);
    EXPECT_GE(range.most, step);
    EXPECT_LE(range.most - range.least, 20ms);
  }
  // Nor does a slow reply hide it.
  clocks.add(boot_at(1s), boot_at(3s), firestore_at(2s));
  EXPECT_GE(clocks.skew_at(reading_at(3s, 700ms))->certain(), 680ms);
}

// The thread may be preempted between the readings of the two clocks.
TEST(FirestoreClockSkew, SlowReadingOfTheClockWidensTheRange) {
  ClockComparison clocks;
  clocks.add(boot_at(0ms), boot_at(0ms), firestore_at(0ms));
  const auto range =
      clocks.skew_at({.time = firestore_at(400ms), .before = boot_at(100ms), .after = boot_at(600ms)}).value();
  EXPECT_LE(range.least, -200ms);
  EXPECT_GE(range.most, 300ms);
}

TEST(FirestoreClockSkew, RoundTripOfASecondProvesNothing) {
  for (auto server = 0ms; server <= 1000ms; server += 1ms) {
    ClockComparison clocks;
    clocks.add(boot_at(0ms), boot_at(1000ms), firestore_at(server));
    const HostTime time{.now = start, .skew = clocks.skew_at(reading_at(1000ms, 0ms))};
    ASSERT_FALSE(time.is_reliable()) << server.count();
    ASSERT_FALSE(time.is_wrong());
  }
}

// Whatever the delays are: the true skew is never outside the range, and the range becomes narrow.
TEST(FirestoreClockSkew, TrueSkewIsAlwaysInTheRange) {
  std::mt19937 random(7);
  const auto between = [&](nanoseconds least, nanoseconds most) {
    return nanoseconds(std::uniform_int_distribution<std::int64_t>(least.count(), most.count())(random));
  };
  for (int round = 0; round < 200; ++round) {
    ClockComparison clocks;
    // The clock runs too fast or too slow by up to 500 parts per million.
    const double speed = std::uniform_real_distribution<double>(-0.0005, 0.0005)(random);
    const auto ahead = std::chrono::floor<milliseconds>(between(-2s, 2s));
    const auto local = [&](nanoseconds time) {
      return time + nanoseconds(static_cast<std::int64_t>(static_cast<double>(time.count()) * speed));
    };
    nanoseconds time{};
    for (int reply = 0; reply < 50; ++reply) {
      const auto sent = time += between(0s, 5s);
      const auto read = time += between(0s, 300ms);
      const auto received = time += between(0s, 300ms);
      clocks.add(boot_at(local(sent)), boot_at(local(received)), firestore_at(read));
      time += between(0s, 1s);
      const auto now = start + std::chrono::floor<milliseconds>(local(time)) + ahead;
      const auto range =
          clocks.skew_at({.time = now, .before = boot_at(local(time)), .after = boot_at(local(time))}).value();
      const auto skew = now.time_since_epoch() - (start.time_since_epoch() + time);
      ASSERT_LE(range.least, skew);
      ASSERT_GE(range.most, skew);
      if (reply > 20) {
        ASSERT_LE(range.most - range.least, 500ms);
      }
    }
  }
}

// As of a broken or hostile server.
TEST(FirestoreClockSkew, ImpossibleServerTimeIsALargeSkew) {
  ClockComparison clocks;
  clocks.add(boot_at(0ms), boot_at(1ms), Timestamp::max());
  EXPECT_LT(clocks.skew_at(reading_at(1ms, 0ms))->certain(), -1000h);
  clocks.add(boot_at(2ms), boot_at(3ms), Timestamp::min());
  EXPECT_GT(clocks.skew_at(reading_at(3ms, 0ms))->certain(), 1000h);
}

TEST(FirestoreClockSkew, LargerEndDecidesWhetherTimeIsReliable) {
  const auto time = [](milliseconds least, milliseconds most) {
    return HostTime{.now = start, .skew = SkewRange{.least = least, .most = most}};
  };
  EXPECT_TRUE(time(-499ms, 499ms).is_reliable());
  for (const auto& doubtful : {time(-500ms, 0ms), time(-20ms, 500ms), time(-600ms, 700ms)}) {
    EXPECT_FALSE(doubtful.is_reliable());
    EXPECT_FALSE(doubtful.is_wrong());
    EXPECT_THAT(unreliable_clock(doubtful).what(), HasSubstr("replies take too long"));
  }
  EXPECT_THAT(unreliable_clock(time(-600ms, 20ms)).what(), HasSubstr("up to 600 ms behind"));
  EXPECT_THAT(unreliable_clock(time(-600ms, 700ms)).what(), HasSubstr("up to 700 ms ahead of"));
  for (const auto& wrong : {time(-800ms, -500ms), time(500ms, 900ms)}) {
    EXPECT_FALSE(wrong.is_reliable());
    EXPECT_TRUE(wrong.is_wrong());
    EXPECT_EQ(unreliable_clock(wrong).code(), ErrorCode::service_unavailable);
    EXPECT_FALSE(unreliable_clock(wrong).in_doubt());
  }
  EXPECT_THAT(unreliable_clock(time(-800ms, -500ms)).what(), HasSubstr("is 500 ms behind"));
}

TEST(FirestoreClockSkew, RemainingTimeIsShortenedByTheLargestLag) {
  const auto remaining = [](milliseconds least, milliseconds most) {
    const HostTime time{.now = start, .skew = SkewRange{.least = least, .most = most}};
    return time.remaining_until(start + 1000ms);
  };
  EXPECT_EQ(remaining(-300ms, -200ms), 700ms);
  EXPECT_EQ(remaining(-300ms, 400ms), 700ms);
  EXPECT_EQ(remaining(0ms, 0ms), 1000ms);
  EXPECT_EQ(remaining(200ms, 400ms), 1000ms) << "a clock that is ahead makes the lock last longer, not the lease";
  EXPECT_EQ(remaining(-1200ms, 0ms), -200ms) << "nothing remains";
}

}  // namespace
}  // namespace syncguard::firestore
