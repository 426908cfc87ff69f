#include "backends/waiters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace syncguard::backends {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

struct WaitersTest : ::testing::Test {
  // Adds a waiter that appends its name to `woken` when it is woken.
  LockId add(const std::string& name, const std::string& topic = "") {
    const auto id = LockId::generate();
    EXPECT_TRUE(waiters.add(
        id, [this, name] { woken.push_back(name); }, topic));
    return id;
  }

  Waiters waiters;
  std::vector<std::string> woken;
};

TEST_F(WaitersTest, WakesUntilRemoved) {
  const auto one = add("one");
  add("other");
  waiters.wake(one);
  EXPECT_THAT(woken, ElementsAre("one"));
  EXPECT_EQ(waiters.remove(one), "");
  EXPECT_EQ(waiters.remove(one), std::nullopt);
  waiters.wake(one);
  EXPECT_THAT(woken, ElementsAre("one"));
}

TEST_F(WaitersTest, TopicWakesItsWaitersAndWakeAllWakesAll) {
  add("a1", "a");
  add("a2", "a");
  add("b", "b");
  waiters.wake_topic("a");
  EXPECT_THAT(woken, UnorderedElementsAre("a1", "a2"));
  woken.clear();
  waiters.wake_all();
  EXPECT_THAT(woken, UnorderedElementsAre("a1", "a2", "b"));
}

TEST_F(WaitersTest, AddingTwiceChangesNothing) {
  const auto one = add("one", "topic");
  EXPECT_FALSE(waiters.add(
      one, [] { FAIL() << "the second waiter must not be added"; }, "other topic"));
  waiters.wake(one);
  EXPECT_THAT(woken, ElementsAre("one"));
  EXPECT_THAT(waiters.all(), ElementsAre(one));
  EXPECT_EQ(waiters.remove(one), "topic");
}

TEST_F(WaitersTest, WokenWaiterCanRemoveItself) {
  const auto id = LockId::generate();
  waiters.add(id, [&] { waiters.remove(id); });
  waiters.wake_all();
  EXPECT_FALSE(waiters.contains(id));
}

}  // namespace
}  // namespace syncguard::backends
