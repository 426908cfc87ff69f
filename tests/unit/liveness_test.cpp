#include "core/liveness.hpp"

#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using std::chrono::milliseconds;

constexpr Timestamp at(int ms) { return Timestamp(milliseconds(ms)); }

// The cases that Lua and SQL are tested against as well.
TEST(Liveness, HoldsUntilTheToleranceAfterTheExpiryIsOver) {
  struct Case {
    int expires_at;
    int now;
    bool live;
  };
  for (const auto& [expires_at, now, live] :
       {Case{10'000, 9'000, true}, Case{10'000, 10'000, true}, Case{10'000, 10'999, true}, Case{10'000, 11'000, false},
        Case{10'000, 11'001, false}}) {
    EXPECT_EQ(is_live(at(expires_at), at(now)), live) << expires_at << " at " << now;
  }
}

TEST(Liveness, EndsExactlyWhenFreeInSays) {
  const auto now = at(5'000);
  const auto expires_at = at(8'000);
  const auto left = free_in(expires_at, now);
  EXPECT_TRUE(is_live(expires_at, now + left - milliseconds(1)));
  EXPECT_FALSE(is_live(expires_at, now + left));
}

TEST(Liveness, CleanupWaitsForTwoSecondsAfterTheExpiry) {
  EXPECT_FALSE(is_removable(at(10'000), at(11'000)));
  EXPECT_FALSE(is_removable(at(10'000), at(12'000)));
  EXPECT_TRUE(is_removable(at(10'000), at(12'001)));
}

}  // namespace
}  // namespace syncguard::core
