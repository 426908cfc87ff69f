#include "locks/lease_machine.hpp"

#include <gtest/gtest.h>

namespace syncguard::detail {
namespace {

using namespace std::chrono_literals;
using Due = LeaseMachine::Due;
using State = LeaseMachine::State;
using Time = LeaseMachine::Time;

constexpr Time at(std::chrono::milliseconds since_boot) { return Time(since_boot); }

// The acquire was sent one second after boot, with a ttl of nine seconds.
LeaseMachine machine(LeaseMachine::Renewal renewal) { return {at(1s), 9s, 9s, renewal}; }
LeaseMachine plain() { return machine(LeaseMachine::Renewal::none); }
LeaseMachine renewed() { return machine(LeaseMachine::Renewal::automatic); }

TEST(LeaseMachine, DeadlineCountsFromBeforeRequest) {
  const auto lease = plain();
  EXPECT_EQ(lease.deadline(), at(10s));
  EXPECT_EQ(lease.remaining(at(4s)), 6s);
  EXPECT_EQ(lease.remaining(at(10s)), 0s);
  EXPECT_EQ(lease.remaining(at(11s)), 0s);
}

// A broken or hostile server may say anything. The longest times would overflow a clock.
TEST(LeaseMachine, NeverLastsLongerThanRequested) {
  for (const auto remaining : {std::chrono::milliseconds(10s), std::chrono::milliseconds::max()}) {
    auto lease = LeaseMachine(at(1s), remaining, 9s, LeaseMachine::Renewal::automatic);
    EXPECT_EQ(lease.deadline(), at(10s));
    EXPECT_EQ(lease.next_tick(), at(4s));
    lease.extend_begins(at(4s), 9s);
    lease.extended(at(4s), remaining, 9s);
    EXPECT_EQ(lease.deadline(), at(13s));
    EXPECT_EQ(lease.next_tick(), at(7s));
  }
  for (const auto remaining : {0ms, -1ms, std::chrono::milliseconds::min()}) {
    auto lease = LeaseMachine(at(1s), remaining, 9s, LeaseMachine::Renewal::none);
    EXPECT_EQ(lease.deadline(), at(1s));
    EXPECT_EQ(lease.tick(at(1s)), Due::lost);
  }
}

TEST(LeaseMachine, IsLostOnceAtDeadline) {
  auto lease = plain();
  EXPECT_EQ(lease.next_tick(), at(10s));
  EXPECT_EQ(lease.tick(at(9999ms)), Due::nothing);
  EXPECT_EQ(lease.tick(at(10s)), Due::lost);
  EXPECT_EQ(lease.state(), State::lost);
  EXPECT_EQ(lease.tick(at(11s)), Due::nothing);
  EXPECT_EQ(lease.next_tick(), std::nullopt);
  EXPECT_EQ(lease.remaining(at(5s)), 0s);
}

TEST(LeaseMachine, RenewsAtOneThirdOfTtl) {
  auto lease = renewed();
  EXPECT_EQ(lease.next_tick(), at(4s));
  EXPECT_EQ(lease.tick(at(3999ms)), Due::nothing);
  EXPECT_EQ(lease.tick(at(4s)), Due::renewal);
  lease.extend_begins(at(4s), 9s);
  EXPECT_EQ(lease.tick(at(5s)), Due::nothing) << "a request is already in flight";
  EXPECT_EQ(lease.next_tick(), at(10s)) << "the deadline still applies";
  lease.extended(at(4s), 9s, 9s);
  EXPECT_EQ(lease.deadline(), at(13s));
  EXPECT_EQ(lease.next_tick(), at(7s));
}

TEST(LeaseMachine, RenewalsUseTtlOfLastExtend) {
  auto lease = renewed();
  lease.extend_begins(at(2s), 30s);
  lease.extended(at(2s), 30s, 30s);
  EXPECT_EQ(lease.ttl(), 30s);
  EXPECT_EQ(lease.next_tick(), at(12s));
}

TEST(LeaseMachine, RetriesFailedRenewalUntilDeadline) {
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
  EXPECT_EQ(lease.next_tick(), at(10s)) << "the retry must not be later than the deadline";
  EXPECT_EQ(lease.tick(at(10s)), Due::lost);
}

TEST(LeaseMachine, RenewalThatCouldNotStartIsPostponed) {
  auto lease = renewed();
  EXPECT_EQ(lease.tick(at(4s)), Due::renewal);
  lease.postpone_renewal(at(4s), 0.5);
  EXPECT_EQ(lease.tick(at(4s)), Due::nothing) << "the retry must be delayed";
  EXPECT_EQ(lease.tick(at(5s)), Due::renewal);
  EXPECT_EQ(lease.deadline(), at(10s));
}

TEST(LeaseMachine, InDoubtExtendKeepsEarlierDeadline) {
  auto shorter = plain();
  shorter.extend_begins(at(2s), 1s);
  shorter.extend_failed(at(3s), Effect::in_doubt, 0);
  EXPECT_EQ(shorter.deadline(), at(3s)) << "the extend may have taken effect";

  auto longer = plain();
  longer.extend_begins(at(2s), 60s);
  longer.extend_failed(at(3s), Effect::in_doubt, 0);
  EXPECT_EQ(longer.deadline(), at(10s)) << "the extend may have had no effect";

  auto certain = plain();
  certain.extend_begins(at(2s), 1s);
  certain.extend_failed(at(2500ms), Effect::none, 0);
  EXPECT_EQ(certain.deadline(), at(10s));
}

// The extend in doubt may reach the store after the later one, and then replaces the longer time.
TEST(LeaseMachine, ExtendInDoubtCapsLaterDeadlines) {
  auto lease = renewed();
  lease.extend_begins(at(2s), 3s);
  lease.extend_failed(at(3s), Effect::in_doubt, 0);
  lease.extend_begins(at(4s), 60s);
  lease.extended(at(4s), 60s, 60s);
  EXPECT_EQ(lease.deadline(), at(7s));
  EXPECT_EQ(lease.next_tick(), at(5s)) << "renewals must be frequent enough for the shorter time";
  lease.extend_begins(at(5s), 60s);
  lease.extended(at(5s), 60s, 60s);
  EXPECT_EQ(lease.deadline(), at(8s)) << "a reply does not tell whether an earlier request can still take effect";
  EXPECT_EQ(lease.ttl(), 60s) << "the store is asked for the full time";
  EXPECT_EQ(lease.latest_expiry(), at(65s)) << "the store may hold the lock that long";
  lease.postpone_renewal(at(7s), 0.99);
  EXPECT_LE(lease.next_tick(), at(7200ms)) << "retries must fit in before the deadline";

  lease.extend_begins(at(6s), 1s);
  lease.extend_failed(at(6s), Effect::none, 0);
  lease.extend_begins(at(6s), 60s);
  lease.extended(at(6s), 60s, 60s);
  EXPECT_EQ(lease.deadline(), at(9s)) << "a request that was not sent cannot take effect later";
}

TEST(LeaseMachine, ShorteningExtendCountsFromWhenItIsSent) {
  auto lease = plain();
  lease.extend_begins(at(2s), 500ms);
  EXPECT_EQ(lease.remaining(at(2s)), 500ms);
  EXPECT_EQ(lease.next_tick(), at(2500ms));
  EXPECT_EQ(lease.tick(at(2500ms)), Due::lost)
      << "the lock may have expired in the store, although there is no reply yet";
}

TEST(LeaseMachine, PausesBetweenRenewalsEvenWithShortTtl) {
  LeaseMachine lease(at(1s), 2ms, 2ms, LeaseMachine::Renewal::automatic);
  EXPECT_EQ(lease.next_tick(), at(1001ms));
}

TEST(LeaseMachine, IsLostIfExtendIsRejected) {
  auto lease = plain();
  lease.extend_begins(at(2s), 9s);
  EXPECT_TRUE(lease.extend_refused());
  EXPECT_EQ(lease.state(), State::lost);
  EXPECT_FALSE(lease.extend_refused()) << "the loss must be reported once";
}

TEST(LeaseMachine, LateReplyDoesNotReviveIt) {
  auto lease = renewed();
  EXPECT_EQ(lease.tick(at(4s)), Due::renewal);
  lease.extend_begins(at(4s), 9s);
  EXPECT_EQ(lease.tick(at(10s)), Due::lost);
  lease.extended(at(4s), 9s, 9s);
  EXPECT_EQ(lease.state(), State::lost);
  EXPECT_EQ(lease.remaining(at(11s)), 0s);
}

TEST(LeaseMachine, LostDoesNotFireOnceReleaseHasBegun) {
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

TEST(LeaseMachine, ClosingClientLosesOnlyHeldLeases) {
  auto held = plain();
  EXPECT_TRUE(held.closed());
  EXPECT_EQ(held.state(), State::over);
  auto released = plain();
  released.release_begins();
  EXPECT_FALSE(released.closed());
}

}  // namespace
}  // namespace syncguard::detail
