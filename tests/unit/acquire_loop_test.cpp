#include "locks/acquire_loop.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace syncguard::detail {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Start = AcquireLoop::Start;
using Step = AcquireLoop::Step;
using Time = AcquireLoop::Time;
using JoinFailure = AcquireLoop::JoinFailure;

constexpr Time start{1h};
constexpr auto long_held = 1h;

constexpr WaitOptions exact{.jitter = Jitter::none};

AcquireLoop loop_with(const WaitOptions& options, Start how = Start::first_in_line) {
  return {options, start, how, [] { return 0.5; }};
}

// Through the first attempt, the joining and the attempt after it, to the first sleep.
AcquireLoop sleeping(const WaitOptions& options, Time now = start) {
  auto loop = loop_with(options);
  loop.contended(now, long_held);
  EXPECT_EQ(loop.step(), Step::join);
  loop.joined();
  loop.contended(now, long_held);
  EXPECT_EQ(loop.step(), Step::sleep);
  return loop;
}

LockError transient(Effect effect = Effect::none) { return {ErrorCode::service_unavailable, "down", effect}; }

TEST(AcquireLoop, KnowsWhetherARefusalWouldEndIt) {
  EXPECT_TRUE(loop_with(exact).can_wait(start));
  EXPECT_FALSE(loop_with({.timeout = 0ms}).can_wait(start));
  EXPECT_FALSE(loop_with({.max_retries = 0}).can_wait(start));
  auto loop = sleeping({.timeout = 5s, .max_retries = 100, .retry_delay = 1min, .max_delay = 1min});
  loop.timer(start + 5s);
  EXPECT_EQ(loop.step(), Step::attempt);
  EXPECT_FALSE(loop.can_wait(start + 5s)) << "the last attempt";
}

TEST(AcquireLoop, JoinsAndTriesAgainBeforeItSleeps) {
  auto loop = loop_with(exact);
  EXPECT_EQ(loop.step(), Step::attempt);
  loop.contended(start, long_held);
  EXPECT_EQ(loop.step(), Step::join);
  loop.joined();
  EXPECT_EQ(loop.step(), Step::attempt) << "the key may have become free before joining";
  loop.contended(start, long_held);
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 100ms);
}

TEST(AcquireLoop, SleepsWithoutAnotherAttemptWhereThereIsNoQueue) {
  auto loop = loop_with(exact);
  loop.contended(start, long_held);
  loop.not_joined(start, JoinFailure::for_good);
  EXPECT_EQ(loop.step(), Step::sleep);
  loop.timer(start + 100ms);
  EXPECT_EQ(loop.step(), Step::attempt) << "and does not ask for one again";
  loop.contended(start + 100ms, long_held);
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 300ms);
}

TEST(AcquireLoop, TriesToJoinAgainAfterATransientFailure) {
  auto loop = loop_with(exact);
  loop.contended(start, long_held);
  loop.not_joined(start, JoinFailure::this_time);
  EXPECT_EQ(loop.step(), Step::sleep);
  loop.timer(start + 100ms);
  EXPECT_EQ(loop.step(), Step::join);
}

TEST(AcquireLoop, FollowsTheScheduleAndJoinsAnewBeforeEveryRetry) {
  auto loop = sleeping(WaitOptions{.timeout = 1h, .max_retries = 3, .jitter = Jitter::none});
  auto now = start;
  for (const auto delay : {100ms, 200ms, 400ms}) {
    EXPECT_EQ(loop.step(), Step::sleep);
    EXPECT_EQ(loop.wait_until() - now, delay);
    now = loop.wait_until();
    loop.timer(now);
    EXPECT_EQ(loop.step(), Step::join);
    loop.joined();
    EXPECT_EQ(loop.step(), Step::attempt);
    loop.contended(now, long_held);
  }
  EXPECT_EQ(loop.step(), Step::fail);
  EXPECT_EQ(loop.error().code(), ErrorCode::acquisition_timeout);
  EXPECT_THAT(loop.error().what(), HasSubstr("5 attempts in 700 ms: all retries are used up"));
}

TEST(AcquireLoop, MakesOneAttemptWithoutRetries) {
  auto loop = loop_with(WaitOptions{.max_retries = 0});
  loop.contended(start, long_held);
  EXPECT_EQ(loop.step(), Step::fail);
  EXPECT_EQ(loop.attempts(), 1);
}

TEST(AcquireLoop, AWakeUpIsAnAttemptThatIsNoRetryAndLeavesTheDelayRunning) {
  auto loop = sleeping(WaitOptions{.timeout = 1h, .max_retries = 1, .jitter = Jitter::none});
  for (int i = 0; i < 10; ++i) {
    loop.woken();
    EXPECT_EQ(loop.step(), Step::attempt);
    loop.contended(start + 10ms, long_held);
    EXPECT_EQ(loop.step(), Step::join) << "its turn is used up";
    loop.joined();
    EXPECT_EQ(loop.step(), Step::attempt);
    loop.contended(start + 10ms, long_held);
    EXPECT_EQ(loop.step(), Step::sleep);
    EXPECT_EQ(loop.wait_until(), start + 100ms);
  }
}

TEST(AcquireLoop, WakesWhenTheHoldersTimeIsOverWithoutCountingARetry) {
  auto loop = loop_with(WaitOptions{.timeout = 1h, .max_retries = 1, .retry_delay = 10s, .jitter = Jitter::none});
  loop.contended(start, 3s);
  loop.joined();
  loop.contended(start, 3s);
  EXPECT_EQ(loop.wait_until(), start + 3s);
  loop.timer(start + 3s);
  EXPECT_EQ(loop.step(), Step::attempt);
  loop.contended(start + 3s, 30s);
  EXPECT_EQ(loop.step(), Step::join);
  loop.joined();
  loop.contended(start + 3s, 30s);
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 10s) << "the delay goes on";
}

TEST(AcquireLoop, DoesNotSpinOnAHolderWhoseTimeIsOver) {
  auto loop = loop_with(exact);
  loop.contended(start, 0ms);
  loop.joined();
  loop.contended(start, -5ms);
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 1ms);
}

TEST(AcquireLoop, AWaitThatWasClampedEndsInOneLastAttempt) {
  auto loop = sleeping(WaitOptions{.timeout = 60ms, .jitter = Jitter::none});
  EXPECT_EQ(loop.wait_until(), start + 60ms);
  loop.timer(start + 60ms);
  EXPECT_EQ(loop.step(), Step::attempt);
  loop.contended(start + 61ms, long_held);
  EXPECT_EQ(loop.step(), Step::fail);
  EXPECT_EQ(loop.error().code(), ErrorCode::acquisition_timeout);
  EXPECT_THAT(loop.error().what(), HasSubstr("3 attempts in 61 ms: the time-out is over"));
}

TEST(AcquireLoop, WithoutTimeMakesOneAttempt) {
  auto loop = loop_with(WaitOptions{.timeout = 0ms});
  EXPECT_EQ(loop.step(), Step::attempt);
  loop.contended(start, long_held);
  EXPECT_EQ(loop.step(), Step::fail);
}

TEST(AcquireLoop, WaitsForEverIfAsked) {
  auto loop = sleeping(WaitOptions{
      .timeout = WaitOptions::no_timeout, .max_retries = WaitOptions::unlimited_retries, .jitter = Jitter::none});
  auto now = start;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(loop.step(), Step::sleep);
    now = loop.wait_until();
    loop.timer(now);
    loop.joined();
    loop.contended(now, long_held);
  }
  EXPECT_EQ(loop.wait_until() - now, 10s);
}

TEST(AcquireLoop, RetriesTransientErrorsOnTheSameSchedule) {
  auto loop = loop_with(exact);
  loop.failed(start, transient());
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 100ms);
  loop.timer(start + 100ms);
  EXPECT_EQ(loop.step(), Step::join);
  loop.not_joined(start + 100ms, JoinFailure::this_time);
  EXPECT_EQ(loop.step(), Step::attempt) << "not joined, but there was no attempt since the delay";
  loop.failed(start + 100ms, transient());
  EXPECT_EQ(loop.wait_until(), start + 300ms);
}

TEST(AcquireLoop, MentionsTheLastTransientErrorWhenItGivesUp) {
  auto loop = loop_with(WaitOptions{.max_retries = 0});
  loop.failed(start, transient(Effect::in_doubt));
  EXPECT_EQ(loop.step(), Step::fail);
  EXPECT_EQ(loop.error().code(), ErrorCode::acquisition_timeout);
  EXPECT_THAT(loop.error().what(), HasSubstr("ServiceUnavailable: down"));
  EXPECT_TRUE(loop.error().context().cause);
  EXPECT_TRUE(loop.in_doubt());
}

TEST(AcquireLoop, PermanentErrorsSurfaceAtOnce) {
  for (const auto code :
       {ErrorCode::auth_failed, ErrorCode::invalid_argument, ErrorCode::internal, ErrorCode::aborted}) {
    auto loop = loop_with(exact);
    loop.failed(start, LockError(code, "no"));
    EXPECT_EQ(loop.step(), Step::fail);
    EXPECT_EQ(loop.error().code(), code);
  }
}

TEST(AcquireLoop, ADoubtIsSettledByTheNextAnswer) {
  auto loop = loop_with(exact);
  loop.failed(start, transient(Effect::in_doubt));
  EXPECT_TRUE(loop.in_doubt());
  loop.timer(start + 100ms);
  loop.joined();
  loop.contended(start + 100ms, long_held);
  EXPECT_FALSE(loop.in_doubt()) << "had it taken effect, the same lock id would have been granted again";
}

TEST(AcquireLoop, ADoubtOutlivesFailuresThatSettleNothing) {
  auto loop = loop_with(WaitOptions{.max_retries = 2, .jitter = Jitter::none});
  loop.failed(start, transient(Effect::in_doubt));
  loop.timer(start + 100ms);
  loop.not_joined(start + 100ms, JoinFailure::this_time);
  loop.failed(start + 100ms, transient());
  EXPECT_TRUE(loop.in_doubt());
  loop.failed(start + 200ms, LockError(ErrorCode::auth_failed, "no"));
  EXPECT_EQ(loop.error().code(), ErrorCode::auth_failed);
  EXPECT_TRUE(loop.error().in_doubt());

  auto stopped = loop_with(exact);
  stopped.failed(start, transient(Effect::in_doubt));
  stopped.stopped();
  EXPECT_TRUE(stopped.error().in_doubt());
}

TEST(AcquireLoop, BehindOthersItWaitsItsTurnAndThenJoinsFirst) {
  auto loop = loop_with(exact, Start::behind_others);
  EXPECT_EQ(loop.step(), Step::wait_in_line);
  EXPECT_EQ(loop.wait_until(), start + 5s);
  loop.first_in_line();
  EXPECT_EQ(loop.step(), Step::join);
  loop.joined();
  EXPECT_EQ(loop.step(), Step::attempt);
  EXPECT_EQ(loop.attempts(), 1);
}

TEST(AcquireLoop, BehindOthersItAttemptsAtOnceWhereThereIsNoQueue) {
  auto loop = loop_with(exact, Start::behind_others);
  loop.first_in_line();
  loop.not_joined(start, JoinFailure::for_good);
  EXPECT_EQ(loop.step(), Step::attempt);
}

TEST(AcquireLoop, ThatNeverBecameFirstTimesOutAfterNoAttempt) {
  auto loop = loop_with(exact, Start::behind_others);
  loop.timer(start + 5s);
  EXPECT_EQ(loop.step(), Step::fail);
  EXPECT_EQ(loop.error().code(), ErrorCode::acquisition_timeout);
  EXPECT_THAT(loop.error().what(), HasSubstr("0 attempts in 5000 ms"));
}

TEST(AcquireLoop, TimeInLineCountsTowardsTheTimeOut) {
  auto loop = loop_with(WaitOptions{.timeout = 1s, .jitter = Jitter::none}, Start::behind_others);
  loop.first_in_line();
  loop.joined();
  loop.contended(start + 950ms, long_held);
  EXPECT_EQ(loop.wait_until(), start + 1s);
}

TEST(AcquireLoop, AStopEndsItInEveryState) {
  auto attempting = loop_with(exact);
  auto in_line = loop_with(exact, Start::behind_others);
  auto joining = loop_with(exact);
  joining.contended(start, long_held);
  auto asleep = sleeping(exact);
  for (auto* loop : {&attempting, &in_line, &joining, &asleep}) {
    loop->stopped();
    EXPECT_EQ(loop->step(), Step::fail);
    EXPECT_EQ(loop->error().code(), ErrorCode::aborted);
  }
}

}  // namespace
}  // namespace syncguard::detail
