#include "async/event.hpp"

#include "async/inline_executor.hpp"
#include "async/spawn.hpp"

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace syncguard::async {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto never = Clock::time_point::max();

// Runs coroutines on a context that only start_wait() and results() advance.
class EventTest : public ::testing::Test {
 public:
  // Starts a wait, and appends its result when it ends.
  void start_wait(const Event& event, Clock::time_point until = never, std::stop_token stop = {}) {
    asio::co_spawn(context, collect(event.wait(until, std::move(stop))), asio::detached);
    context.restart();
    context.poll();
  }
  // Runs everything that is ready, and returns the results of the waits that ended since the last call.
  std::vector<WaitResult> results() {
    context.restart();
    context.poll();
    return std::exchange(results_, {});
  }

  asio::io_context context;

 private:
  asio::awaitable<void> collect(asio::awaitable<WaitResult> wait) { results_.push_back(co_await std::move(wait)); }

  std::vector<WaitResult> results_;
};

using Results = std::vector<WaitResult>;

TEST_F(EventTest, SetEndsAllWaits) {
  const Event event;
  start_wait(event);
  start_wait(event);
  EXPECT_EQ(results(), Results{});
  event.set();
  EXPECT_EQ(results(), Results({WaitResult::set, WaitResult::set}));
}

TEST_F(EventTest, WaitEndsAtOnceWhileEventIsSet) {
  const Event event;
  event.set();
  start_wait(event);
  start_wait(event);
  EXPECT_EQ(results(), Results({WaitResult::set, WaitResult::set}));
  event.reset();
  EXPECT_FALSE(event.is_set());
  start_wait(event);
  EXPECT_EQ(results(), Results{});
}

TEST_F(EventTest, ResetAfterSetDoesNotUndoWakeUp) {
  const Event event;
  start_wait(event);
  event.set();
  event.reset();
  EXPECT_EQ(results(), Results({WaitResult::set}));
}

TEST_F(EventTest, DeadlineEndsWait) {
  start_wait(Event(), Clock::time_point::min());
  EXPECT_EQ(results(), Results({WaitResult::timed_out}));
}

TEST_F(EventTest, StopEndsOnlyItsOwnWait) {
  const Event event;
  std::stop_source stop;
  start_wait(event, never, stop.get_token());
  start_wait(event);
  stop.request_stop();
  EXPECT_EQ(results(), Results({WaitResult::stopped}));
  event.set();
  EXPECT_EQ(results(), Results({WaitResult::set}));
}

TEST_F(EventTest, StopWinsOverSet) {
  const Event event;
  std::stop_source stop;
  start_wait(event, never, stop.get_token());
  event.set();
  stop.request_stop();
  EXPECT_EQ(results(), Results({WaitResult::stopped}));
  start_wait(event, never, stop.get_token());
  EXPECT_EQ(results(), Results({WaitResult::stopped})) << "a stop requested before the wait also wins";
}

// The resumed waiter may lock the same mutex.
TEST_F(EventTest, SetWithMutexHeldNeverResumesWaiterOnThisThread) {
  const Event event;
  std::mutex mutex;
  bool resumed = false;
  const auto wait = [&]() -> asio::awaitable<void> {
    (void)co_await event.wait(never);
    const std::lock_guard lock(mutex);
    resumed = true;
  };
  spawn(context.get_executor(), wait());
  {
    const std::lock_guard lock(mutex);
    event.set();
    EXPECT_FALSE(resumed);
  }
  context.run();
  EXPECT_TRUE(resumed);
}

TEST_F(EventTest, MayBeSetAfterContextWasDestroyedWithItsWaits) {
  const Event event;
  std::stop_source stop;
  {
    asio::io_context short_lived;
    const auto wait = [&]() -> asio::awaitable<void> { (void)co_await event.wait(never, stop.get_token()); };
    asio::co_spawn(short_lived, wait(), asio::detached);
    asio::co_spawn(short_lived, wait(), asio::detached);
    short_lived.poll();
  }
  event.set();
  stop.request_stop();
}

TEST_F(EventTest, BlockedThreadIsWokenBySet) {
  const Event event;
  EXPECT_FALSE(event.wait_blocking(Clock::time_point::min()));
  auto blocked = std::async(std::launch::async, [event] { return event.wait_blocking(never); });
  event.set();
  EXPECT_TRUE(blocked.get());
  EXPECT_TRUE(event.wait_blocking(Clock::time_point::min()));
}

TEST_F(EventTest, SetMeetsWaitThatBeginsOnAnotherThread) {
  for (int round = 0; round < 1000; ++round) {
    const Event event;
    std::stop_source stop;
    std::promise<void> go;
    std::thread setter([event, stop, ready = go.get_future(), round]() mutable {
      ready.wait();
      if (round % 2 == 0) stop.request_stop();
      event.set();
    });
    WaitResult result = WaitResult::timed_out;
    const auto wait = [&]() -> asio::awaitable<void> { result = co_await event.wait(never, stop.get_token()); };
    asio::co_spawn(context, wait(), asio::detached);
    context.restart();
    go.set_value();
    context.run();
    setter.join();
    EXPECT_EQ(result, round % 2 == 0 ? WaitResult::stopped : WaitResult::set);
  }
}

TEST_F(EventTest, WaitWithinLimitsThrowsWhatEndedIt) {
  const Event event;
  const auto code_after = [&](CallLimits limits) {
    std::optional<ErrorCode> code;
    const auto wait = [&]() -> asio::awaitable<void> {
      try {
        co_await event.wait(limits, "no answer in time", Effect::in_doubt);
      } catch (const LockError& error) {
        EXPECT_TRUE(error.in_doubt());
        code = error.code();
      }
    };
    asio::co_spawn(context, wait(), asio::detached);
    context.restart();
    context.run();
    return code;
  };
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(code_after({{}, Clock::time_point::min()}), ErrorCode::network_timeout);
  EXPECT_EQ(code_after({stop.get_token(), never}), ErrorCode::aborted);
}

TEST(Promise, GivesItsValueToEveryWaiter) {
  const Promise<std::string> promise;
  EXPECT_FALSE(promise.is_ready());
  promise.set_from([] { return std::string("value"); });
  EXPECT_TRUE(promise.ready().is_set());
  EXPECT_FALSE(promise.has_error());
  const auto copy = promise;  // NOLINT(performance-unnecessary-copy-initialization): copies share the value
  EXPECT_EQ(copy, promise);
  EXPECT_EQ(copy.value(), "value");
  EXPECT_EQ(promise.value(), "value");
}

TEST(Promise, ThrowsItsError) {
  const Promise<int> promise;
  promise.set_from([]() -> int { throw std::runtime_error("failed"); });
  EXPECT_TRUE(promise.is_ready());
  EXPECT_TRUE(promise.has_error());
  EXPECT_THROW((void)promise.value(), std::runtime_error);
}

}  // namespace
}  // namespace syncguard::async
