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

AcquireLoop loop_with(const WaitOptions& options, Start how = Start::first_in_queue) {
  return {options, start, how, [] { return 0.5; }};
}

// A loop that has made its first attempt, joined the queue, attempted again and begins to sleep.
AcquireLoop sleeping(const WaitOptions& options, Time now = start) {
  auto loop = loop_with(options);
  loop.contended(now, {long_held});
  EXPECT_EQ(loop.step(), Step::join);
  loop.joined(start, {});
  loop.contended(now, {long_held});
  EXPECT_EQ(loop.step(), Step::sleep);
  return loop;
}

LockError transient(Effect effect = Effect::none) { return {ErrorCode::service_unavailable, "down", effect}; }

TEST(AcquireLoop, ReportsWhetherContentionWouldEndIt) {
  EXPECT_TRUE(loop_with(exact).can_wait(start));
  EXPECT_FALSE(loop_with({.timeout = 0ms}).can_wait(start));
  EXPECT_FALSE(loop_with({.max_retries = 0}).can_wait(start));
  auto loop = sleeping({.timeout = 5s, .max_retries = 100, .retry_delay = 1min, .max_delay = 1min});
  loop.timer(start + 5s);
  EXPECT_EQ(loop.step(), Step::attempt);
  EXPECT_FALSE(loop.can_wait(start + 5s)) << "this is the last attempt before the timeout";
}

TEST(AcquireLoop, JoinsQueueAndRetriesBeforeSleeping) {
  auto loop = loop_with(exact);
  EXPECT_EQ(loop.step(), Step::attempt);
  loop.contended(start, {long_held});
  EXPECT_EQ(loop.step(), Step::join);
  loop.joined(start, {});
  EXPECT_EQ(loop.step(), Step::attempt) << "the key may have become free before joining";
  loop.contended(start, {long_held});
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 100ms);
}

TEST(AcquireLoop, SleepsWithoutAttemptIfJoiningSawThatKeyIsHeld) {
  auto loop = loop_with(exact);
  loop.contended(start, {long_held});
  loop.joined(start, {.free_in = 30ms});
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 30ms);
  EXPECT_EQ(loop.attempts(), 1);
  loop.timer(start + 30ms);
  EXPECT_EQ(loop.step(), Step::attempt) << "the holder's time is over";
}

TEST(AcquireLoop, TimesOutIfJoiningSawThatKeyIsHeldAfterTheTimeout) {
  auto loop = loop_with({.timeout = 1s});
  loop.contended(start, {long_held});
  loop.joined(start + 1s, {.free_in = long_held});
  EXPECT_EQ(loop.step(), Step::fail);
  EXPECT_EQ(loop.error().code(), ErrorCode::acquisition_timeout);
}

TEST(AcquireLoop, SleepsWithoutRetryIfThereIsNoQueue) {
  auto loop = loop_with(exact);
  loop.contended(start, {long_held});
  loop.not_joined(start, JoinFailure::permanent);
  EXPECT_EQ(loop.step(), Step::sleep);
  loop.timer(start + 100ms);
  EXPECT_EQ(loop.step(), Step::attempt) << "the loop must not try to join again";
  loop.contended(start + 100ms, {long_held});
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 300ms);
}

TEST(AcquireLoop, RejoinsAfterTransientFailure) {
  auto loop = loop_with(exact);
  loop.contended(start, {long_held});
  loop.not_joined(start, JoinFailure::this_time);
  EXPECT_EQ(loop.step(), Step::sleep);
  loop.timer(start + 100ms);
  EXPECT_EQ(loop.step(), Step::join);
}

TEST(AcquireLoop, FollowsScheduleAndRejoinsBeforeEveryRetry) {
  auto loop = sleeping(WaitOptions{.timeout = 1h, .max_retries = 3, .jitter = Jitter::none});
  auto now = start;
  for (const auto delay : {100ms, 200ms, 400ms}) {
    EXPECT_EQ(loop.step(), Step::sleep);
    EXPECT_EQ(loop.wait_until() - now, delay);
    now = loop.wait_until();
    loop.timer(now);
    EXPECT_EQ(loop.step(), Step::join);
    loop.joined(start, {});
    EXPECT_EQ(loop.step(), Step::attempt);
    loop.contended(now, {long_held});
  }
  EXPECT_EQ(loop.step(), Step::fail);
  EXPECT_EQ(loop.error().code(), ErrorCode::acquisition_timeout);
  EXPECT_THAT(loop.error().what(), HasSubstr("5 attempts (700 ms): the retry limit was reached"));
}

TEST(AcquireLoop, MakesOneAttemptIfRetriesAreDisabled) {
  auto loop = loop_with(WaitOptions{.max_retries = 0});
  loop.contended(start, {long_held});
  EXPECT_EQ(loop.step(), Step::fail);
  EXPECT_EQ(loop.attempts(), 1);
}

TEST(AcquireLoop, WakeUpCausesAttemptWithoutCountingAsRetry) {
  auto loop = sleeping(WaitOptions{.timeout = 1h, .max_retries = 1, .jitter = Jitter::none});
  for (int i = 0; i < 10; ++i) {
    loop.woken();
    EXPECT_EQ(loop.step(), Step::attempt);
    loop.contended(start + 10ms, {long_held});
    EXPECT_EQ(loop.step(), Step::join) << "the attempt has used up its turn";
    loop.joined(start, {});
    EXPECT_EQ(loop.step(), Step::attempt);
    loop.contended(start + 10ms, {long_held});
    EXPECT_EQ(loop.step(), Step::sleep);
    EXPECT_EQ(loop.wait_until(), start + 100ms);
  }
}

TEST(AcquireLoop, ExpiryOfHolderCausesAttemptWithoutCountingAsRetry) {
  auto loop = loop_with(WaitOptions{.timeout = 1h, .max_retries = 1, .retry_delay = 10s, .jitter = Jitter::none});
  loop.contended(start, {3s});
  loop.joined(start, {});
  loop.contended(start, {3s});
  EXPECT_EQ(loop.wait_until(), start + 3s);
  loop.timer(start + 3s);
  EXPECT_EQ(loop.step(), Step::attempt);
  loop.contended(start + 3s, {30s});
  EXPECT_EQ(loop.step(), Step::join);
  loop.joined(start, {});
  loop.contended(start + 3s, {30s});
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 10s) << "the original retry delay must continue";
}

TEST(AcquireLoop, IgnoresExpiryOfHolderIfQueueNoticesIt) {
  auto loop = loop_with(exact);
  loop.contended(start, {30ms});
  loop.joined(start, {.free_in = 30ms, .notices_expiry = true});
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 100ms);
  loop.timer(start + 100ms);
  loop.joined(start + 100ms, {.notices_expiry = true});
  EXPECT_EQ(loop.step(), Step::attempt);
  loop.contended(start + 100ms, {30ms});
  EXPECT_EQ(loop.wait_until(), start + 300ms) << "the attempt after joining found the key taken";
}

TEST(AcquireLoop, QueueThatNoticesExpiryWakesWaiterWithoutCountingAsRetry) {
  auto loop = loop_with(WaitOptions{.timeout = 1h, .max_retries = 1, .jitter = Jitter::none});
  loop.contended(start, {long_held});
  loop.joined(start, {.free_in = long_held, .notices_expiry = true});
  for (int i = 0; i < 10; ++i) {
    loop.woken();
    EXPECT_EQ(loop.step(), Step::attempt);
    loop.contended(start + 10ms, {30ms});
    EXPECT_EQ(loop.step(), Step::join);
    loop.joined(start + 10ms, {.free_in = 30ms, .notices_expiry = true});
    EXPECT_EQ(loop.step(), Step::sleep);
    EXPECT_EQ(loop.wait_until(), start + 100ms) << "the original retry delay must continue";
  }
}

TEST(AcquireLoop, ExpiryOfHolderCausesAttemptIfRejoiningFailed) {
  auto loop = loop_with(exact);
  loop.contended(start, {long_held});
  loop.joined(start, {.free_in = long_held, .notices_expiry = true});
  loop.woken();
  loop.contended(start, {30ms});
  EXPECT_EQ(loop.step(), Step::join);
  loop.not_joined(start, JoinFailure::this_time);
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 30ms);
}

TEST(AcquireLoop, DoesNotSpinOnExpiredHolder) {
  auto loop = loop_with(exact);
  loop.contended(start, {0ms});
  loop.joined(start, {});
  loop.contended(start, {-5ms});
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 1ms);
}

TEST(AcquireLoop, ClampedWaitEndsInOneLastAttempt) {
  auto loop = sleeping(WaitOptions{.timeout = 60ms, .jitter = Jitter::none});
  EXPECT_EQ(loop.wait_until(), start + 60ms);
  loop.timer(start + 60ms);
  EXPECT_EQ(loop.step(), Step::attempt);
  loop.contended(start + 61ms, {long_held});
  EXPECT_EQ(loop.step(), Step::fail);
  EXPECT_EQ(loop.error().code(), ErrorCode::acquisition_timeout);
  EXPECT_THAT(loop.error().what(), HasSubstr("timed out waiting for the lock after 3 attempts (61 ms)"));
}

TEST(AcquireLoop, ZeroTimeoutMakesOneAttempt) {
  auto loop = loop_with(WaitOptions{.timeout = 0ms});
  EXPECT_EQ(loop.step(), Step::attempt);
  loop.contended(start, {long_held});
  EXPECT_EQ(loop.step(), Step::fail);
}

TEST(AcquireLoop, RetriesUntilTimeoutUnlessRetriesAreLimited) {
  constexpr auto timeout = 2min;
  auto loop = sleeping({.timeout = timeout, .jitter = Jitter::none});
  auto now = start;
  while (loop.wait_until() < start + timeout) {
    now = loop.wait_until();
    loop.timer(now);
    loop.joined(start, {});
    loop.contended(now, {long_held});
    ASSERT_EQ(loop.step(), Step::sleep) << "gave up after " << (now - start) / 1ms << " ms";
  }
  loop.timer(start + timeout);
  loop.contended(start + timeout, {long_held});
  EXPECT_EQ(loop.step(), Step::fail);
}

TEST(AcquireLoop, WaitsForeverWithoutTimeout) {
  auto loop = sleeping(WaitOptions{.timeout = WaitOptions::no_timeout, .jitter = Jitter::none});
  auto now = start;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(loop.step(), Step::sleep);
    now = loop.wait_until();
    loop.timer(now);
    loop.joined(start, {});
    loop.contended(now, {long_held});
  }
  EXPECT_EQ(loop.wait_until() - now, 10s);
}

TEST(AcquireLoop, RetriesTransientErrorsOnSameSchedule) {
  auto loop = loop_with(exact);
  loop.failed(start, transient());
  EXPECT_EQ(loop.step(), Step::sleep);
  EXPECT_EQ(loop.wait_until(), start + 100ms);
  loop.timer(start + 100ms);
  EXPECT_EQ(loop.step(), Step::attempt) << "no join: a store that may be overloaded gets only one request";
  loop.failed(start + 100ms, transient());
  EXPECT_EQ(loop.wait_until(), start + 300ms);
  loop.timer(start + 300ms);
  loop.contended(start + 300ms, {long_held});
  EXPECT_EQ(loop.step(), Step::join) << "the key is now known to be locked";
}

TEST(AcquireLoop, TimeoutMessageNamesLastTransientError) {
  auto loop = loop_with(WaitOptions{.max_retries = 0});
  loop.failed(start, transient(Effect::in_doubt));
  EXPECT_EQ(loop.step(), Step::fail);
  EXPECT_EQ(loop.error().code(), ErrorCode::acquisition_timeout);
  EXPECT_THAT(loop.error().what(), HasSubstr("ServiceUnavailable: down"));
  EXPECT_TRUE(loop.error().context().cause);
  EXPECT_TRUE(loop.in_doubt());
}

TEST(AcquireLoop, PermanentErrorsAreThrownImmediately) {
  for (const auto code :
       {ErrorCode::auth_failed, ErrorCode::invalid_argument, ErrorCode::internal, ErrorCode::aborted}) {
    auto loop = loop_with(exact);
    loop.failed(start, LockError(code, "no"));
    EXPECT_EQ(loop.step(), Step::fail);
    EXPECT_EQ(loop.error().code(), code);
  }
}

TEST(AcquireLoop, NextReplySettlesInDoubtAttempt) {
  auto loop = loop_with(exact);
  loop.failed(start, transient(Effect::in_doubt));
  EXPECT_TRUE(loop.in_doubt());
  loop.timer(start + 100ms);
  loop.contended(start + 100ms, {long_held});
  EXPECT_FALSE(loop.in_doubt())
      << "if the first attempt had taken effect, the repeated lock id would have been granted";
}

TEST(AcquireLoop, AttemptStaysInDoubtUntilAReplySettlesIt) {
  auto loop = loop_with(WaitOptions{.max_retries = 2, .jitter = Jitter::none});
  loop.failed(start, transient(Effect::in_doubt));
  loop.timer(start + 100ms);
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

TEST(AcquireLoop, LaterWaiterWaitsForItsTurnThenJoins) {
  auto loop = loop_with(exact, Start::behind_others);
  EXPECT_EQ(loop.step(), Step::wait_in_queue);
  EXPECT_EQ(loop.wait_until(), start + 5s);
  loop.first_in_queue();
  EXPECT_EQ(loop.step(), Step::join);
  loop.joined(start, {});
  EXPECT_EQ(loop.step(), Step::attempt);
  EXPECT_EQ(loop.attempts(), 1);
}

TEST(AcquireLoop, LaterWaiterAttemptsImmediatelyIfThereIsNoQueue) {
  auto loop = loop_with(exact, Start::behind_others);
  loop.first_in_queue();
  loop.not_joined(start, JoinFailure::permanent);
  EXPECT_EQ(loop.step(), Step::attempt);
}

TEST(AcquireLoop, WaiterThatNeverBecameFirstTimesOutAfterZeroAttempts) {
  auto loop = loop_with(exact, Start::behind_others);
  loop.timer(start + 5s);
  EXPECT_EQ(loop.step(), Step::fail);
  EXPECT_EQ(loop.error().code(), ErrorCode::acquisition_timeout);
  EXPECT_THAT(loop.error().what(), HasSubstr("0 attempts (5000 ms)"));
}

TEST(AcquireLoop, TimeInQueueCountsTowardTimeout) {
  auto loop = loop_with(WaitOptions{.timeout = 1s, .jitter = Jitter::none}, Start::behind_others);
  loop.first_in_queue();
  loop.joined(start, {});
  loop.contended(start + 950ms, {long_held});
  EXPECT_EQ(loop.wait_until(), start + 1s);
}

TEST(AcquireLoop, StopEndsItInEveryState) {
  auto attempting = loop_with(exact);
  auto in_queue = loop_with(exact, Start::behind_others);
  auto joining = loop_with(exact);
  joining.contended(start, {long_held});
  auto asleep = sleeping(exact);
  for (auto* loop : {&attempting, &in_queue, &joining, &asleep}) {
    loop->stopped();
    EXPECT_EQ(loop->step(), Step::fail);
    EXPECT_EQ(loop->error().code(), ErrorCode::aborted);
  }
}

}  // namespace
}  // namespace syncguard::detail
