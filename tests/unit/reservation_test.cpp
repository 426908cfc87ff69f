#include "core/reservation.hpp"

#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using namespace std::chrono_literals;

TEST(Reservation, IsClampedToItsBounds) {
  EXPECT_EQ(clamp_reservation(-1ms), 50ms);
  EXPECT_EQ(clamp_reservation(0ms), 50ms);
  EXPECT_EQ(clamp_reservation(51ms), 51ms);
  EXPECT_EQ(clamp_reservation(300ms), 300ms);
  EXPECT_EQ(clamp_reservation(std::chrono::milliseconds::max()), 300ms);
}

TEST(Reservation, IsThreeMeasuredRoundTrips) {
  RoundTrip round_trip;
  EXPECT_EQ(round_trip.reservation(), 50ms) << "before the first measurement";
  round_trip.measured(1ms);
  EXPECT_EQ(round_trip.reservation(), 50ms);
  round_trip.measured(80ms);
  EXPECT_EQ(round_trip.reservation(), 240ms);
}

TEST(Reservation, GrowsImmediatelyAndShrinksSlowly) {
  RoundTrip round_trip;
  round_trip.measured(10ms);
  round_trip.measured(90ms);
  EXPECT_EQ(round_trip.reservation(), 270ms);
  round_trip.measured(10ms);
  EXPECT_EQ(round_trip.reservation(), 240ms);
}

TEST(Reservation, RecoversQuicklyFromOneStall) {
  RoundTrip round_trip;
  round_trip.measured(std::chrono::hours(1));
  EXPECT_EQ(round_trip.reservation(), 300ms);
  for (int i = 0; i < 20; ++i) round_trip.measured(1ms);
  EXPECT_EQ(round_trip.reservation(), 50ms);
}

}  // namespace
}  // namespace syncguard::core
