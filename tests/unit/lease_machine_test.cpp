#include "locks/lease_machine.hpp"

#include <gtest/gtest.h>

namespace syncguard::detail {
namespace {

using namespace std::chrono_literals;
using Due = LeaseMachine::Due;
using State = LeaseMachine::State;
using Time = LeaseMachine::Time;

constexpr Time at(std::chrono::milliseconds since_boot) { return Time(since_boot); }

// Sent at one second after boot, for nine seconds.
LeaseMachine machine(LeaseMachine::Renewal renewal) { return {at(1s), 9s, 9s, renewal}; }
LeaseMachine plain() { return machine(LeaseMachine::Renewal::none); }
LeaseMachine renewed() { return machine(LeaseMachine::Renewal::automatic); }

TEST(LeaseMachine, CountsFromBeforeTheRequestWasSent) {
  const auto lease = plain();
  EXPECT_EQ(lease.deadline(), at(10s));
  EXPECT_EQ(lease.remaining(at(4s)), 6s);
  EXPECT_EQ(lease.remaining(at(10s)), 0s);
  EXPECT_EQ(lease.remaining(at(11s)), 0s);
}

TEST(LeaseMachine, IsLostOnceWhenItsDeadlinePasses) {
  auto lease = plain();
  EXPECT_EQ(lease.next_tick(), at(10s));
  EXPECT_EQ(lease.tick(at(9999ms)), Due::nothing);
  EXPECT_EQ(lease.tick(at(10s)), Due::lost);
  EXPECT_EQ(lease.state(), State::lost);
  EXPECT_EQ(lease.tick(at(11s)), Due::nothing);
  EXPECT_EQ(lease.next_tick(), std::nullopt);
  EXPECT_EQ(lease.remaining(at(5s)), 0s);
}

TEST(LeaseMachine, RenewsAtAThirdOfItsTtl) {
  auto lease = renewed();
  EXPECT_EQ(lease.next_tick(), at(4s));
  EXPECT_EQ(lease.tick(at(3999ms)), Due::nothing);
  EXPECT_EQ(lease.tick(at(4s)), Due::renewal);
  lease.extend_begins(at(4s), 9s);
  EXPECT_EQ(lease.tick(at(5s)), Due::nothing) << "one request in flight";
  EXPECT_EQ(lease.next_tick(), at(10s)) << "the deadline stands meanwhile";
  lease.extended(at(4s), 9s, 9s);
  EXPECT_EQ(lease.deadline(), at(13s));
  EXPECT_EQ(lease.next_tick(), at(7s));
}

TEST(LeaseMachine, UsesTheTtlOfTheLastExtendForLaterRenewals) {
  auto lease = renewed();
  lease.extend_begins(at(2s), 30s);
  lease.extended(at(2s), 30s, 30s);
  EXPECT_EQ(lease.ttl(), 30s);
  EXPECT_EQ(lease.next_tick(), at(12s));
}

TEST(LeaseMachine, RetriesAFailedRenewalUntilTheDeadline) {
  auto lease = renewed();
  EXPECT_EQ(lease.tick(at(4s)), Due::renewal);
  lease.extend_begins(at(4s), 9s);
  lease.extend_failed(at(6s), Effect::none, 0.5);
  EXPECT_EQ(lease.deadline(), at(10s));
  const auto retry = lease.next_tick();
  ASSERT_TRUE(retry);
  EXPECT_GT(*retry, at(6s));
  EXPECT_LE(*retry, at(7s));
  EXPECT_EQ(lease.tick(*retry), Due::renewal);
  lease.extend_begins(*retry, 9s);
  lease.extend_failed(at(9900ms), Effect::none, 0.99);
  EXPECT_EQ(lease.next_tick(), at(10s)) << "never later than the deadline";
  EXPECT_EQ(lease.tick(at(10s)), Due::lost);
}

TEST(LeaseMachine, ARenewalThatCouldNotBeginIsPutOffAndNothingElseChanges) {
  auto lease = renewed();
  EXPECT_EQ(lease.tick(at(4s)), Due::renewal);
  lease.put_renewal_off(at(4s), 0.5);
  EXPECT_EQ(lease.tick(at(4s)), Due::nothing) << "not at once";
  EXPECT_EQ(lease.tick(at(5s)), Due::renewal);
  EXPECT_EQ(lease.deadline(), at(10s));
}

TEST(LeaseMachine, AnInDoubtExtendLeavesTheEarlierOfBothDeadlines) {
  auto shorter = plain();
  shorter.extend_begins(at(2s), 1s);
  shorter.extend_failed(at(3s), Effect::in_doubt, 0);
  EXPECT_EQ(shorter.deadline(), at(3s)) << "it may have taken effect";

  auto longer = plain();
  longer.extend_begins(at(2s), 60s);
  longer.extend_failed(at(3s), Effect::in_doubt, 0);
  EXPECT_EQ(longer.deadline(), at(10s)) << "it may not have taken effect";

  auto certain = plain();
  certain.extend_begins(at(2s), 1s);
  certain.extend_failed(at(2500ms), Effect::none, 0);
  EXPECT_EQ(certain.deadline(), at(10s));
}

TEST(LeaseMachine, AShorteningExtendCountsFromTheMomentItIsSent) {
  auto lease = plain();
  lease.extend_begins(at(2s), 500ms);
  EXPECT_EQ(lease.remaining(at(2s)), 500ms);
  EXPECT_EQ(lease.next_tick(), at(2500ms));
  EXPECT_EQ(lease.tick(at(2500ms)), Due::lost) << "no answer yet, and the store may have let go";
}

TEST(LeaseMachine, DoesNotRenewWithoutAPauseHoweverShortItsTtl) {
  LeaseMachine lease(at(1s), 2ms, 2ms, LeaseMachine::Renewal::automatic);
  EXPECT_EQ(lease.next_tick(), at(1001ms));
}

TEST(LeaseMachine, IsLostWhenAnExtendIsRefused) {
  auto lease = plain();
  lease.extend_begins(at(2s), 9s);
  EXPECT_TRUE(lease.extend_refused());
  EXPECT_EQ(lease.state(), State::lost);
  EXPECT_FALSE(lease.extend_refused()) << "lost() fires once";
}

TEST(LeaseMachine, ALateAnswerDoesNotReviveIt) {
  auto lease = renewed();
  EXPECT_EQ(lease.tick(at(4s)), Due::renewal);
  lease.extend_begins(at(4s), 9s);
  EXPECT_EQ(lease.tick(at(10s)), Due::lost);
  lease.extended(at(4s), 9s, 9s);
  EXPECT_EQ(lease.state(), State::lost);
  EXPECT_EQ(lease.remaining(at(11s)), 0s);
}

TEST(LeaseMachine, StaysSilentOnceItsReleaseHasBegun) {
  auto lease = renewed();
  lease.release_begins();
  EXPECT_EQ(lease.next_tick(), std::nullopt);
  EXPECT_EQ(lease.tick(at(60s)), Due::nothing);
  EXPECT_FALSE(lease.extend_refused());
  EXPECT_EQ(lease.state(), State::releasing);
  lease.end();
  EXPECT_EQ(lease.state(), State::over);
  lease.release_begins();
  EXPECT_EQ(lease.state(), State::over);
}

TEST(LeaseMachine, ClosingTheClientLosesWhatIsHeldAndNothingElse) {
  auto held = plain();
  EXPECT_TRUE(held.closed());
  EXPECT_EQ(held.state(), State::over);
  auto released = plain();
  released.release_begins();
  EXPECT_FALSE(released.closed());
}

}  // namespace
}  // namespace syncguard::detail
