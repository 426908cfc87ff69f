// The backoff of a client that has released a contended lock in Firestore.

#include "backends/firestore/backoff_after_release.hpp"

#include <gtest/gtest.h>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;

struct BackoffAfterRelease : ::testing::Test {
  firestore::BackoffAfterRelease backoff;
  const LockId own_lock = LockId::generate();
  const LockId theirs = LockId::generate();
  const firestore::BackoffAfterRelease::Clock::time_point now{1h};
};

TEST_F(BackoffAfterRelease, NoBackoffWithoutContention) {
  backoff.granted("lock", own_lock, 5ms);
  backoff.released("lock", own_lock, now);
  EXPECT_EQ(backoff.remaining_backoff("lock", now), 0ms);
}

TEST_F(BackoffAfterRelease, BacksOffOnceAfterContention) {
  backoff.observed_holder("lock", theirs);
  backoff.granted("lock", own_lock, 5ms);
  EXPECT_EQ(backoff.remaining_backoff("lock", now), 0ms) << "the backoff must start at the release";
  backoff.released("lock", own_lock, now);
  EXPECT_EQ(backoff.remaining_backoff("lock", now), 10ms)
      << "twice the duration of an acquire: others must notice the release, then acquire";
  EXPECT_EQ(backoff.remaining_backoff("lock", now + 10ms), 0ms);
  EXPECT_EQ(backoff.remaining_backoff("another", now), 0ms);

  backoff.granted("lock", own_lock, 5ms);
  backoff.released("lock", own_lock, now + 20ms);
  EXPECT_EQ(backoff.remaining_backoff("lock", now + 20ms), 0ms) << "there was no contention since the last backoff";
}

TEST_F(BackoffAfterRelease, OwnThreadsDoNotCountAsContention) {
  backoff.observed_holder("lock", theirs);
  backoff.granted("lock", own_lock, 5ms);
  backoff.released("lock", own_lock, now);
  const auto ours_again = LockId::generate();
  backoff.granted("lock", ours_again, 5ms);
  backoff.observed_holder("lock", ours_again);
  backoff.released("lock", ours_again, now + 1s);
  EXPECT_EQ(backoff.remaining_backoff("lock", now + 1s), 0ms);
}

TEST_F(BackoffAfterRelease, BackoffIsLimited) {
  backoff.observed_holder("lock", theirs);
  backoff.granted("lock", own_lock, 1h);
  backoff.released("lock", own_lock, now);
  EXPECT_EQ(backoff.remaining_backoff("lock", now), 250ms);
}

}  // namespace
}  // namespace syncguard::testing
