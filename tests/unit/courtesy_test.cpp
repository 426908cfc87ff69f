// Who lets others go first at a lock in Firestore.

#include "backends/firestore/courtesy.hpp"

#include <gtest/gtest.h>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;

struct Courtesy : ::testing::Test {
  firestore::Courtesy courtesy;
  const LockId ours = LockId::generate();
  const LockId theirs = LockId::generate();
  const firestore::Courtesy::Clock::time_point now{1h};
};

TEST_F(Courtesy, WhoMetNobodyLeavesTheLockToNobody) {
  courtesy.granted("lock", ours, 5ms);
  courtesy.released("lock", ours, now);
  EXPECT_EQ(courtesy.left_to_others("lock", now), 0ms);
}

TEST_F(Courtesy, WhoMetOthersLeavesItToThemOnceAndForAMoment) {
  courtesy.met("lock", theirs);
  courtesy.granted("lock", ours, 5ms);
  EXPECT_EQ(courtesy.left_to_others("lock", now), 0ms) << "not before it was released";
  courtesy.released("lock", ours, now);
  EXPECT_EQ(courtesy.left_to_others("lock", now), 10ms) << "to hear of it, and to try";
  EXPECT_EQ(courtesy.left_to_others("lock", now + 10ms), 0ms);
  EXPECT_EQ(courtesy.left_to_others("another", now), 0ms);

  courtesy.granted("lock", ours, 5ms);
  courtesy.released("lock", ours, now + 20ms);
  EXPECT_EQ(courtesy.left_to_others("lock", now + 20ms), 0ms) << "nobody was met since";
}

TEST_F(Courtesy, ThreadsOfTheSameClientAreNoOthers) {
  courtesy.met("lock", theirs);
  courtesy.granted("lock", ours, 5ms);
  courtesy.released("lock", ours, now);
  const auto ours_again = LockId::generate();
  courtesy.granted("lock", ours_again, 5ms);
  courtesy.met("lock", ours_again);
  courtesy.released("lock", ours_again, now + 1s);
  EXPECT_EQ(courtesy.left_to_others("lock", now + 1s), 0ms);
}

TEST_F(Courtesy, ASlowStoreDoesNotMakeItWaitForEver) {
  courtesy.met("lock", theirs);
  courtesy.granted("lock", ours, 1h);
  courtesy.released("lock", ours, now);
  EXPECT_EQ(courtesy.left_to_others("lock", now), 250ms);
}

}  // namespace
}  // namespace syncguard::testing
