// The atomic steps of the embedded backend, without threads.

#include "async/system_now.hpp"
#include "backends/sqlite/store.hpp"
#include "temporary_folder.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;

TEST(SqliteStore, OneLookFindsEveryQueueOfAFreeKey) {
  const TemporaryFolder folder;
  sqlite::Store store(folder.path() / "locks.db",
                      {.keep_waiting = [] { return false; }, .may_write = [] { return true; }});
  const auto holder = LockId::generate();
  const std::vector<LockId> waiters = {LockId::generate(), LockId::generate(), LockId::generate()};
  (void)store.acquire({"held", holder, 60s});
  store.join("held", waiters[0]);
  EXPECT_TRUE(store.free_queues().empty());
  store.join("free", waiters[1]);
  store.join("free", waiters[2]);
  const auto now = async::system_now();
  auto queues = store.free_queues();
  ASSERT_EQ(queues.size(), 1U);
  EXPECT_TRUE(sqlite::Store::prospect(queues["free"], waiters[1], now).try_now);
  const auto behind = sqlite::Store::prospect(queues["free"], waiters[2], now);
  EXPECT_FALSE(behind.try_now);
  EXPECT_TRUE(behind.stalled);
  EXPECT_TRUE(behind.look_again_at);

  (void)store.release(holder);
  queues = store.free_queues();
  ASSERT_EQ(queues.size(), 2U);
  // In the midst of that turn, however long it took to come here.
  ASSERT_TRUE(queues["held"].front().turn_until);
  const auto in_the_turn = *queues["held"].front().turn_until - 10ms;
  EXPECT_TRUE(sqlite::Store::prospect(queues["held"], waiters[0], in_the_turn).try_now) << "it has a turn";
  const auto stranger = sqlite::Store::prospect(queues["held"], waiters[1], in_the_turn);
  EXPECT_FALSE(stranger.try_now);
  EXPECT_FALSE(stranger.stalled) << "somebody has a turn";
}

}  // namespace
}  // namespace syncguard::testing
