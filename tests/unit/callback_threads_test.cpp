#include "async/callback_threads.hpp"

#include "support/eventually.hpp"
#include "support/signal.hpp"
#include "support/thread_count.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

namespace syncguard::async {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using syncguard::testing::eventually;
using syncguard::testing::Signal;
using syncguard::testing::threads_named;
using Growth = CallbackThreads::Growth;
using Posted = CallbackThreads::Posted;

TEST(CallbackThreads, BlockedFunctionDoesNotDelayNextOne) {
  CallbackThreads threads("test-blocked", Growth::while_blocked);
  EXPECT_EQ(threads_named("test-blocked"), 2U) << "one to run functions, one to stand by";
  const auto unblock = std::make_shared<Signal>();
  std::atomic<int> begun{0};
  for (int i = 0; i < 300; ++i) {
    threads.post([unblock, &begun] {
      ++begun;
      unblock->wait_for(100s);
    });
  }
  Signal reached;
  threads.post([&] { reached.set(); });
  EXPECT_TRUE(reached.wait_for(60s));
  EXPECT_EQ(begun, 300);
  unblock->set();
  EXPECT_TRUE(threads.wait_until_idle(steady_clock::now() + 60s));
  EXPECT_TRUE(eventually([] { return threads_named("test-blocked") <= 2; })) << "the extra threads must end";
}

TEST(CallbackThreads, BusyFunctionDelaysNextOneOnlyBriefly) {
  CallbackThreads threads("test-computes", Growth::while_blocked);
  std::atomic<bool> stop{false};
  threads.post([&] {
    while (!stop) {
    }
  });
  Signal reached;
  threads.post([&] { reached.set(); });
  EXPECT_TRUE(reached.wait_for(60s));
  stop = true;
  EXPECT_TRUE(threads.wait_until_idle(steady_clock::now() + 60s));
}

TEST(CallbackThreads, QuickFunctionsNeedFewThreads) {
  CallbackThreads threads("test-quick", Growth::while_blocked);
  std::atomic<std::size_t> most{0};
  std::atomic<int> ran{0};
  for (int i = 0; i < 10'000; ++i) {
    threads.post([&] {
      if (++ran % 50 == 0) most = std::max<std::size_t>(most, threads_named("test-quick"));
    });
  }
  EXPECT_TRUE(threads.wait_until_idle(steady_clock::now() + 60s));
  EXPECT_EQ(ran, 10'000);
  EXPECT_LE(most, 10U) << "two threads, and a few more if a busy machine delays them";
  EXPECT_GE(most, 1U);
}

TEST(CallbackThreads, SingleThreadRunsFunctionsInOrderAndSurvivesExceptions) {
  CallbackThreads threads("test-order", Growth::none);
  EXPECT_EQ(threads_named("test-order"), 0U) << "the first function starts the thread";
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    threads.post([&order, i] {
      order.push_back(i);
      throw std::runtime_error("ignored");
    });
  }
  ASSERT_TRUE(threads.wait_until_idle(steady_clock::now() + 60s));
  ASSERT_EQ(order.size(), 100U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(CallbackThreads, FullQueueRejectsFunctions) {
  CallbackThreads threads("test-full", Growth::none);
  Signal unblock;
  Signal blocked;
  threads.post([&] {
    blocked.set();
    unblock.wait_for(100s);
  });
  ASSERT_TRUE(blocked.wait_for(60s));
  EXPECT_EQ(threads.post([] {}, 2), Posted::queued);
  EXPECT_EQ(threads.post([] {}, 2), Posted::queued);
  EXPECT_EQ(threads.post([] {}, 2), Posted::full);
  EXPECT_FALSE(threads.wait_until_idle(steady_clock::now()));
  unblock.set();
  EXPECT_TRUE(threads.wait_until_idle(steady_clock::now() + 60s));
}

TEST(CallbackThreads, QueuedFunctionsRunAfterOwnerIsDestroyed) {
  std::atomic<int> ran{0};
  {
    CallbackThreads threads("test-leftover", Growth::while_blocked);
    for (int i = 0; i < 10; ++i) threads.post([&] { ++ran; });
  }
  EXPECT_TRUE(eventually([&] { return ran == 10; }));
}

}  // namespace
}  // namespace syncguard::async
