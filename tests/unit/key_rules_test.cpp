#include "core/key_rules.hpp"

#include "support/key_rules.hpp"

#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using namespace std::chrono_literals;

TEST(KeyRules, EveryCase) {
  testing::key_rules::Machine machine;
  testing::key_rules::run_cases(machine);
}

TEST(KeyRules, FirstWaiterLooksWhenKeyMayBeFree) {
  const WaiterReply first{.free_in = 40ms, .is_first = true};
  EXPECT_EQ(next_look(first, 250ms, 0), 41ms);
  EXPECT_EQ(next_look(first, 250ms, 0.999), 41ms);
}

TEST(KeyRules, OthersLookLittleLaterAtRandomTimes) {
  const WaiterReply other{.free_in = 40ms};
  EXPECT_EQ(next_look(other, 250ms, 0), 50ms);
  EXPECT_EQ(next_look(other, 250ms, 0.999), 99ms);
}

TEST(KeyRules, NoWaiterLooksLaterThanItsPeriod) {
  EXPECT_EQ(next_look({.free_in = 9000ms, .is_first = true}, 250ms, 0), 250ms);
  EXPECT_EQ(next_look({.free_in = 9000ms}, 250ms, 0), 250ms);
  EXPECT_EQ(next_look({}, 250ms, 0), 250ms);
}

TEST(KeyRules, ReplyThatRoundsToZeroDoesNotMakeWaiterSpin) {
  EXPECT_EQ(next_look({.free_in = 0ms, .is_first = true}, 250ms, 0), 1ms);
  EXPECT_EQ(next_look({.free_in = -5ms, .is_first = true}, 250ms, 0), 1ms);
}

}  // namespace
}  // namespace syncguard::core
