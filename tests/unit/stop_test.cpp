#include "async/stop.hpp"

#include <gtest/gtest.h>

namespace syncguard::async {
namespace {

TEST(EitherStop, StopsWhenOneTokenStops) {
  for (int which = 0; which < 2; ++which) {
    std::stop_source sources[2];
    const EitherStop either{sources[0].get_token(), sources[1].get_token()};
    EXPECT_FALSE(either.token().stop_requested());
    sources[which].request_stop();
    EXPECT_TRUE(either.token().stop_requested());
  }
}

TEST(EitherStop, ReturnsTheOnlyStoppableToken) {
  std::stop_source source;
  const EitherStop either{std::stop_token(), source.get_token()};
  EXPECT_EQ(either.token(), source.get_token());
  const EitherStop none{std::stop_token(), std::stop_token()};
  EXPECT_FALSE(none.token().stop_possible());
}

TEST(EitherStop, IsStoppedIfATokenAlreadyIs) {
  std::stop_source stopped;
  std::stop_source other;
  stopped.request_stop();
  const EitherStop either{other.get_token(), stopped.get_token()};
  EXPECT_TRUE(either.token().stop_requested());
}

}  // namespace
}  // namespace syncguard::async
