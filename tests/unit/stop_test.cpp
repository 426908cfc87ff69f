#include "async/stop.hpp"

#include <gtest/gtest.h>

namespace syncguard::async {
namespace {

TEST(AnyStop, StopsWhenAnyTokenStops) {
  for (int which = 0; which < 3; ++which) {
    std::stop_source sources[3];
    const AnyStop any{sources[0].get_token(), sources[1].get_token(), sources[2].get_token()};
    EXPECT_FALSE(any.token().stop_requested());
    sources[which].request_stop();
    EXPECT_TRUE(any.token().stop_requested());
  }
}

TEST(AnyStop, ReturnsTheOnlyStoppableToken) {
  std::stop_source source;
  const AnyStop any{std::stop_token(), source.get_token()};
  EXPECT_EQ(any.token(), source.get_token());
  const AnyStop none{std::stop_token(), std::stop_token()};
  EXPECT_FALSE(none.token().stop_possible());
}

TEST(AnyStop, IsStoppedIfATokenAlreadyIs) {
  std::stop_source stopped;
  std::stop_source other;
  stopped.request_stop();
  const AnyStop any{other.get_token(), stopped.get_token()};
  EXPECT_TRUE(any.token().stop_requested());
}

}  // namespace
}  // namespace syncguard::async
