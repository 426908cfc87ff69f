#include <syncguard/fence_gate.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace syncguard {
namespace {

TEST(FenceGate, AdmitsNothingOlderThanNewestSeen) {
  FenceGate gate;
  EXPECT_TRUE(gate.admit("a", Fence(5)));
  EXPECT_TRUE(gate.admit("a", Fence(5)));
  EXPECT_FALSE(gate.admit("a", Fence(4)));
  EXPECT_TRUE(gate.admit("a", Fence(6)));
  EXPECT_FALSE(gate.admit("a", Fence(5)));
  EXPECT_EQ(gate.newest("a"), Fence(6));
}

TEST(FenceGate, DifferentKeysAreIndependent) {
  FenceGate gate;
  EXPECT_TRUE(gate.admit("a", Fence(5)));
  EXPECT_TRUE(gate.admit("b", Fence(1)));
  EXPECT_EQ(gate.newest("c"), Fence());
}

TEST(FenceGate, AdmittedSequenceNeverDecreasesOnAnyThread) {
  FenceGate gate;
  std::vector<std::thread> threads;
  std::atomic<int> admitted{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t value = 1; value <= 1000; ++value) {
        if (gate.admit("key", Fence(value))) ++admitted;
        EXPECT_GE(gate.newest("key"), Fence(value));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GE(admitted, 1000);
}

}  // namespace
}  // namespace syncguard
