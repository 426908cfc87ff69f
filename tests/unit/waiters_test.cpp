#include "backends/waiters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace syncguard::backends {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using Clock = Waiters::Clock;

struct WaitersTest : ::testing::Test {
  // Adds a waiter that appends its name to `woken` when it is woken.
  LockId add(const std::string& name, const std::string& topic = "") {
    const auto id = LockId::generate();
    EXPECT_TRUE(
        waiters.add(id, {.key = name, .wake = [this, name] { woken.push_back(name); }, .name = name, .topic = topic}));
    return id;
  }
  // The same for one that has joined.
  LockId join(const std::string& name, core::WaiterReply reply = {.free_in = 1h, .place = 7},
              const std::string& topic = "") {
    const auto id = add(name, topic);
    waiters.joined(id, reply, 50ms);
    return id;
  }

  int sooner = 0;
  Waiters waiters{{}, [this] { ++sooner; }};
  std::vector<std::string> woken;
  const Clock::time_point start = Clock::now();
};

auto between(Clock::time_point earliest, Clock::time_point latest) { return AllOf(Ge(earliest), Le(latest)); }

TEST_F(WaitersTest, WakesUntilRemoved) {
  const auto one = add("one");
  add("other");
  waiters.wake(one);
  EXPECT_THAT(woken, ElementsAre("one"));
  EXPECT_TRUE(waiters.remove(one));
  EXPECT_FALSE(waiters.remove(one));
  waiters.wake(one);
  waiters.wake_named("one");
  EXPECT_THAT(woken, ElementsAre("one"));
}

TEST_F(WaitersTest, WakesByNameAndAll) {
  add("a");
  add("b");
  waiters.wake_named("a");
  EXPECT_THAT(woken, ElementsAre("a"));
  woken.clear();
  waiters.wake_all();
  EXPECT_THAT(woken, UnorderedElementsAre("a", "b"));
}

TEST_F(WaitersTest, AddingTwiceChangesNothing) {
  const auto one = add("one");
  EXPECT_FALSE(waiters.add(one, {.key = "one", .wake = [] { FAIL() << "the second waiter must not be added"; }}));
  waiters.wake(one);
  EXPECT_THAT(woken, ElementsAre("one"));
  EXPECT_TRUE(waiters.contains(one));
}

TEST_F(WaitersTest, WokenWaiterCanRemoveItself) {
  const auto id = LockId::generate();
  waiters.add(id, {.key = "self", .wake = [&] { waiters.remove(id); }});
  waiters.wake_all();
  EXPECT_FALSE(waiters.contains(id));
  EXPECT_TRUE(waiters.empty());
}

TEST_F(WaitersTest, LooksOnlyAfterItHasJoined) {
  const auto id = add("one");
  EXPECT_EQ(waiters.next_look(), Clock::time_point::max());
  waiters.joined(id, {.free_in = 1h, .place = 7}, 250ms);
  EXPECT_THAT(waiters.next_look(), between(start + 200ms, Clock::now() + 300ms));
  EXPECT_EQ(sooner, 1);
  EXPECT_THAT(waiters.take_due(waiters.next_look() - 1ms, 64), IsEmpty());
  const auto due = waiters.take_due(waiters.next_look(), 64);
  ASSERT_THAT(due, SizeIs(1));
  EXPECT_EQ(due[0].id, id);
  EXPECT_EQ(due[0].key, Key("one"));
  EXPECT_EQ(due[0].place, 7);
  EXPECT_EQ(due[0].reservation, 250ms);
}

TEST_F(WaitersTest, LooksAgainOnlyAfterItsLookWasReported) {
  const auto id = join("one");
  EXPECT_THAT(waiters.take_due(start + 1h, 64), SizeIs(1));
  EXPECT_EQ(waiters.next_look(), Clock::time_point::max());
  waiters.looked(id, {.free_in = 5ms, .is_first = true});
  EXPECT_THAT(waiters.take_due(start + 2h, 64), SizeIs(1));
  waiters.look_later(id);
  EXPECT_THAT(waiters.take_due(start + 3h, 64), SizeIs(1));
  EXPECT_THAT(woken, IsEmpty());
}

TEST_F(WaitersTest, LookThatFindsKeyFreeWakesWaiter) {
  const auto id = join("one");
  EXPECT_THAT(waiters.take_due(start + 1h, 64), SizeIs(1));
  waiters.looked(id, {});
  EXPECT_THAT(woken, ElementsAre("one"));
}

TEST_F(WaitersTest, WokenWaiterDoesNotLookBeforeItHasJoinedAgain) {
  const auto id = join("one");
  waiters.wake(id);
  EXPECT_EQ(waiters.next_look(), Clock::time_point::max());
  // A look that was under way.
  waiters.looked(id, {.free_in = 5ms});
  waiters.look_later(id);
  waiters.look_at_topic("", 1ms);
  EXPECT_EQ(waiters.next_look(), Clock::time_point::max());
  waiters.joined(id, {.free_in = 5ms}, 50ms);
  EXPECT_THAT(waiters.next_look(), Le(Clock::now() + 300ms));
}

TEST_F(WaitersTest, LooksWhenKeyMayBeFree) {
  join("one", {.free_in = 20ms, .is_first = true});
  EXPECT_THAT(waiters.next_look(), between(start + 21ms, Clock::now() + 21ms));
}

TEST_F(WaitersTest, LongQueuesAreLookedAtLessOften) {
  const auto id = add("one");
  waiters.joined(id, {.free_in = 1h}, 50ms, 3);
  EXPECT_THAT(waiters.next_look(), between(start + 600ms, Clock::now() + 900ms));
}

TEST_F(WaitersTest, TurnOfAnotherWaiterMovesLook) {
  join("a", {.free_in = 1h}, "topic");
  join("b", {.free_in = 1h}, "other topic");
  EXPECT_TRUE(waiters.has_topic("topic"));
  EXPECT_FALSE(waiters.has_topic("unknown topic"));
  waiters.look_at_topic("topic", 50ms);
  EXPECT_THAT(waiters.next_look(), between(start + 60ms, Clock::now() + 110ms));
  EXPECT_EQ(waiters.take_due(waiters.next_look(), 64).at(0).key, Key("a"));
}

TEST_F(WaitersTest, LastTurnCountsButNeverDelaysRegularLook) {
  join("a", {.free_in = 1h}, "topic");
  const auto regular = waiters.next_look();
  waiters.look_at_topic("topic", 50ms);
  waiters.look_at_topic("topic", 100ms);
  EXPECT_THAT(waiters.next_look(), between(start + 110ms, Clock::now() + 160ms));
  waiters.look_at_topic("topic", 300ms);
  EXPECT_EQ(waiters.next_look(), regular);
}

// The look may have found what was before that turn.
TEST_F(WaitersTest, TurnDuringALookMovesTheNextLook) {
  const auto id = join("a", {.free_in = 0ms, .is_first = true}, "topic");
  EXPECT_THAT(waiters.take_due(waiters.next_look(), 64), SizeIs(1));
  waiters.look_at_topic("topic", 50ms);
  waiters.looked(id, {.free_in = 30s});
  EXPECT_THAT(waiters.next_look(), between(start + 60ms, Clock::now() + 110ms));
}

TEST_F(WaitersTest, AllLookAfterMissedMessages) {
  join("a");
  join("b");
  waiters.look_now();
  EXPECT_THAT(waiters.take_due(Clock::now(), 64), SizeIs(2));
}

TEST_F(WaitersTest, ManyWaitersLookLessOftenInsteadOfAllAtOnce) {
  for (int i = 0; i < 100; ++i) join("waiter " + std::to_string(i), {.free_in = 1ms, .is_first = true});
  const auto time = Clock::now() + 1h;
  EXPECT_THAT(waiters.take_due(time, 64), SizeIs(64));
  EXPECT_EQ(waiters.next_look(), time + 6400us);
  EXPECT_THAT(waiters.take_due(time + 6ms, 64), IsEmpty());
  EXPECT_THAT(waiters.take_due(time + 7ms, 64), SizeIs(36));
}

}  // namespace
}  // namespace syncguard::backends
