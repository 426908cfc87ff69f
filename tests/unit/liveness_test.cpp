
#include "support/liveness_cases.hpp"

#include <syncguard/liveness.hpp>

#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using std::chrono::milliseconds;

constexpr Timestamp at(int ms) { return Timestamp(milliseconds(ms)); }

TEST(Liveness, LockIsLiveUntilToleranceAfterExpiry) {
  for (const auto& [expires_at, now, live] : testing::liveness_cases) {
    EXPECT_EQ(is_live(at(expires_at), at(now)), live) << expires_at << " at " << now;
  }
}

TEST(Liveness, EndsWhenFreeInElapses) {
  const auto now = at(5'000);
  const auto expires_at = at(8'000);
  const auto left = free_in(expires_at, now);
  EXPECT_TRUE(is_live(expires_at, now + left - milliseconds(1)));
  EXPECT_FALSE(is_live(expires_at, now + left));
}

TEST(Liveness, CleanupWaitsTwoSecondsAfterExpiry) {
  for (const auto& [expires_at, now, removable] : testing::removal_cases) {
    EXPECT_EQ(is_removable(at(expires_at), at(now)), removable) << expires_at << " at " << now;
  }
}

}  // namespace
}  // namespace syncguard::core
