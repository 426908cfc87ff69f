// Where the steps of the embedded backend run, and in which order.

#include "async/spawn.hpp"
#include "backends/sqlite/worker.hpp"
#include "expect_error.hpp"
#include "temporary_folder.hpp"

#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/use_future.hpp>

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// A step that tells on which thread it runs, and ends when it may.
struct Step {
  std::promise<std::thread::id> begun;
  std::promise<void> may_end;

  std::function<bool(sqlite::Store&)> function() {
    return [this](sqlite::Store&) {
      begun.set_value(std::this_thread::get_id());
      may_end.get_future().wait();
      return true;
    };
  }
};

std::function<std::thread::id(sqlite::Store&)> which_thread() {
  return [](sqlite::Store&) { return std::this_thread::get_id(); };
}

struct SqliteWorker : ::testing::Test {
  TemporaryFolder folder;
  asio::io_context context;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work{context.get_executor()};
  std::thread io_thread{[this] { context.run(); }};
  std::optional<sqlite::Worker> worker{folder.path() / "locks.db"};

  ~SqliteWorker() override {
    worker.reset();
    work.reset();
    io_thread.join();
  }

  static CallLimits limits(std::chrono::milliseconds time = 60s) { return {{}, steady_clock::now() + time}; }
  template <typename Result>
  Result block_on(std::function<Result(sqlite::Store&)> step, CallLimits within = limits()) {
    return async::run_blocking<Result>(context.get_executor(), worker->run(std::move(step), within));
  }
  template <typename Result>
  std::future<Result> begin(std::function<Result(sqlite::Store&)> step, CallLimits within = limits()) {
    // On this thread, so that it is in the queue when this returns.
    const asio::any_io_executor executor = context.get_executor();
    return asio::co_spawn(asio::any_io_executor(async::InlineExecutor(executor)), worker->run(std::move(step), within),
                          asio::use_future);
  }
};

TEST_F(SqliteWorker, ABlockingCallerWorksItselfAndAnAsynchronousOneNever) {
  EXPECT_EQ(block_on(which_thread()), std::this_thread::get_id());
  const auto other = begin(which_thread()).get();
  EXPECT_NE(other, std::this_thread::get_id());
  EXPECT_NE(other, io_thread.get_id());
}

TEST_F(SqliteWorker, OneStepAtATimeInTheOrderInWhichTheyCame) {
  Step first;
  auto under_way = begin(first.function());
  first.begun.get_future().wait();
  std::vector<int> order;
  auto second = begin(std::function<bool(sqlite::Store&)>([&](sqlite::Store&) {
    order.push_back(2);
    return true;
  }));
  // A thread that could work itself waits for its turn.
  std::thread ends_the_first([&] { first.may_end.set_value(); });
  EXPECT_TRUE(block_on(std::function<bool(sqlite::Store&)>([&](sqlite::Store&) {
    order.push_back(3);
    return true;
  })));
  ends_the_first.join();
  EXPECT_TRUE(under_way.get());
  EXPECT_TRUE(second.get());
  EXPECT_EQ(order, (std::vector{2, 3}));
}

TEST_F(SqliteWorker, WhatComesDuringABlockingCallersStepRunsAfterIt) {
  Step first;
  auto blocking = std::async(std::launch::async, [&] { return block_on(first.function()); });
  first.begun.get_future().wait();
  auto second = begin(which_thread());
  EXPECT_EQ(second.wait_for(20ms), std::future_status::timeout);
  first.may_end.set_value();
  EXPECT_TRUE(blocking.get());
  (void)second.get();
}

TEST_F(SqliteWorker, WhoWaitsBehindABlockingCallersStepGivesUpInTime) {
  Step first;
  auto blocking = std::async(std::launch::async, [&] { return block_on(first.function()); });
  first.begun.get_future().wait();
  const auto error = error_of([&] { (void)begin(which_thread(), limits(20ms)).get(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::network_timeout);
  EXPECT_FALSE(error->in_doubt()) << "it had not begun";
  first.may_end.set_value();
  EXPECT_TRUE(blocking.get());
}

TEST_F(SqliteWorker, ClosingWaitsForABlockingCallersStepAndForWhatIsQueued) {
  Step first;
  auto blocking = std::async(std::launch::async, [&] { return block_on(first.function()); });
  first.begun.get_future().wait();
  auto queued = begin(which_thread());
  const CallLimits within = limits();
  auto closed = asio::co_spawn(context, worker->close(within), asio::use_future);
  EXPECT_EQ(closed.wait_for(20ms), std::future_status::timeout);
  first.may_end.set_value();
  closed.get();
  EXPECT_TRUE(blocking.get());
  EXPECT_EQ(queued.wait_for(0s), std::future_status::ready);
}

TEST_F(SqliteWorker, AStepThatFailsBlocksNobodyElse) {
  const std::function<bool(sqlite::Store&)> failing = [](sqlite::Store&) -> bool {
    throw std::runtime_error("not a LockError");
  };
  EXPECT_THROW((void)block_on(failing), std::runtime_error);
  EXPECT_EQ(block_on(which_thread()), std::this_thread::get_id());
}

}  // namespace
}  // namespace syncguard::testing
