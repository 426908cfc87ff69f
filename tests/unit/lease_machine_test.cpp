#include "locks/lease_machine.hpp"

#include <gtest/gtest.h>

namespace syncguard::detail {
namespace {

using namespace std::chrono_literals;
using Actions = LeaseMachine::Actions;
using ReleasedBy = LeaseMachine::ReleasedBy;
using State = LeaseMachine::State;
using Time = LeaseMachine::Time;

constexpr Actions nothing{};
constexpr Actions start_renewal{.start = Actions::Start::renewal};
constexpr Actions start_release{.start = Actions::Start::release};
constexpr Actions lose{.fire_lost = true, .report_loss = true, .report_end = true};
constexpr Actions report_end{.report_end = true};
constexpr Actions report_loss{.report_loss = true, .report_end = true};

constexpr Time at(std::chrono::milliseconds since_boot) { return Time(since_boot); }

double least() { return 0; }
double half() { return 0.5; }
double most() { return 0.99; }
double not_called() {
  ADD_FAILURE() << "this must need no random number";
  return 0;
}

// The acquire was sent one second after boot, with a ttl of nine seconds.
LeaseMachine machine(LeaseMachine::Renewal renewal) {
  LeaseMachine lease(at(1s), 9s, 9s, renewal);
  lease.started();
  return lease;
}
LeaseMachine plain() { return machine(LeaseMachine::Renewal::none); }
LeaseMachine renewed() { return machine(LeaseMachine::Renewal::automatic); }
LeaseMachine releasing() {
  auto lease = plain();
  EXPECT_TRUE(lease.release_begins(at(2s), ReleasedBy::holder));
  return lease;
}
LeaseMachine lost() {
  auto lease = plain();
  EXPECT_EQ(lease.lock_is_gone(), lose);
  return lease;
}

void begin_extend(LeaseMachine& lease, Time sent_at, std::chrono::milliseconds ttl) {
  EXPECT_TRUE(lease.take_slot());
  lease.extend_begins(sent_at, ttl);
}
void fail_extend(LeaseMachine& lease, Time now, Effect effect, double (*random)() = least) {
  lease.extend_failed(now, effect, random());
  lease.free_slot(now, not_called);
}
// The reply arrives at the time of sending.
bool extend(LeaseMachine& lease, Time sent_at, std::chrono::milliseconds remaining, std::chrono::milliseconds ttl) {
  begin_extend(lease, sent_at, ttl);
  const bool held = lease.extended(sent_at, remaining, ttl);
  lease.free_slot(sent_at, not_called);
  return held;
}

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
    lease.started();
    EXPECT_TRUE(extend(lease, at(4s), remaining, 9s));
    EXPECT_EQ(lease.deadline(), at(13s));
    EXPECT_EQ(lease.next_tick(), at(7s));
  }
  for (const auto remaining : {0ms, -1ms, std::chrono::milliseconds::min()}) {
    auto lease = LeaseMachine(at(1s), remaining, 9s, LeaseMachine::Renewal::none);
    lease.started();
    EXPECT_EQ(lease.deadline(), at(1s));
    EXPECT_EQ(lease.tick(at(1s), not_called), lose);
  }
}

TEST(LeaseMachine, IsNotCountedBeforeItIsStarted) {
  LeaseMachine lease(at(1s), 9s, 9s, LeaseMachine::Renewal::none);
  EXPECT_EQ(lease.state(), State::granted);
  EXPECT_EQ(lease.next_tick(), at(10s)) << "it is watched before it is started";
  EXPECT_EQ(lease.remaining(at(1s)), 0s);
  EXPECT_EQ(lease.end(), nothing);
  EXPECT_EQ(lease.state(), State::over);
}

TEST(LeaseMachine, IsLostOnceAtDeadline) {
  auto lease = plain();
  EXPECT_EQ(lease.next_tick(), at(10s));
  EXPECT_EQ(lease.tick(at(9999ms), not_called), nothing);
  EXPECT_FALSE(lease.fires_lost());
  EXPECT_EQ(lease.tick(at(10s), not_called), lose);
  EXPECT_EQ(lease.state(), State::lost);
  EXPECT_TRUE(lease.fires_lost());
  EXPECT_EQ(lease.tick(at(11s), not_called), nothing);
  EXPECT_EQ(lease.lock_is_gone(), nothing);
  EXPECT_EQ(lease.next_tick(), std::nullopt);
  EXPECT_EQ(lease.remaining(at(5s)), 0s);
}

TEST(LeaseMachine, IsLostOnceIfStoreLosesLock) {
  auto lease = plain();
  EXPECT_EQ(lease.lock_is_gone(), lose);
  EXPECT_EQ(lease.state(), State::lost);
  EXPECT_EQ(lease.lock_is_gone(), nothing);
  EXPECT_EQ(releasing().lock_is_gone(), nothing) << "its holder has given it up";
}

TEST(LeaseMachine, RenewsAtOneThirdOfTtl) {
  auto lease = renewed();
  EXPECT_EQ(lease.next_tick(), at(4s));
  EXPECT_EQ(lease.tick(at(3999ms), not_called), nothing);
  EXPECT_EQ(lease.tick(at(4s), half), start_renewal);
  lease.extend_begins(at(4s), 9s);
  EXPECT_EQ(lease.tick(at(5s), not_called), nothing) << "a request is already in flight";
  EXPECT_EQ(lease.next_tick(), at(10s)) << "the deadline still applies";
  EXPECT_TRUE(lease.extended(at(4s), 9s, 9s));
  EXPECT_EQ(lease.deadline(), at(13s));
  EXPECT_EQ(lease.next_tick(), at(7s));
}

TEST(LeaseMachine, RenewalsEndAtMaxHold) {
  LeaseMachine lease(at(1s), 9s, 9s, LeaseMachine::Renewal::automatic, 20s);
  lease.started();
  for (const auto now : {4s, 7s, 10s}) {
    EXPECT_EQ(lease.next_tick(), at(now));
    EXPECT_EQ(lease.renewal(at(now))->ttl, 9s);
    EXPECT_TRUE(extend(lease, at(now), 9s, 9s));
  }
  EXPECT_EQ(lease.next_tick(), at(13s));
  EXPECT_EQ(lease.renewal(at(13s))->ttl, 8s) << "the last one ends at max_hold";
  EXPECT_TRUE(extend(lease, at(13s), 8s, 8s));
  EXPECT_EQ(lease.next_tick(), at(21s)) << "nothing is renewed anymore";
  EXPECT_EQ(lease.tick(at(20999ms), not_called), nothing);
  EXPECT_EQ(lease.tick(at(21s), not_called), lose);
  EXPECT_EQ(lease.loss_reason(), LossReason::max_hold);
}

TEST(LeaseMachine, LastRenewalBeforeMaxHoldIsRepeatedAfterFailure) {
  LeaseMachine lease(at(1s), 9s, 9s, LeaseMachine::Renewal::automatic, 11s);
  lease.started();
  EXPECT_EQ(lease.tick(at(4s), half), start_renewal);
  EXPECT_EQ(lease.renewal(at(4s))->ttl, 8s);
  lease.extend_begins(at(4s), 8s);
  fail_extend(lease, at(4s), Effect::none);
  ASSERT_LT(*lease.next_tick(), at(5s));
  EXPECT_EQ(lease.renewal(at(5s))->ttl, 7s);
  EXPECT_EQ(lease.renewal(at(10s)), std::nullopt) << "the deadline has passed";
}

// As on Firestore, which may reply with less than the ttl.
TEST(LeaseMachine, RenewalsEndAtMaxHoldEvenIfRepliesSayLess) {
  LeaseMachine lease(at(1s), 8700ms, 9s, LeaseMachine::Renewal::automatic, 20s);
  lease.started();
  int renewals = 0;
  for (auto next = lease.next_tick(); lease.tick(*next, half) == start_renewal; next = lease.next_tick()) {
    ++renewals;
    const auto ttl = lease.renewal(*next)->ttl;
    lease.extend_begins(*next, ttl);
    EXPECT_TRUE(lease.extended(*next, ttl - 300ms, ttl));
    lease.free_slot(*next, not_called);
  }
  EXPECT_EQ(renewals, 4);
  EXPECT_EQ(lease.loss_reason(), LossReason::max_hold);
  EXPECT_EQ(lease.deadline(), at(20700ms));
}

TEST(LeaseMachine, ShorterExtendIsRenewedUntilMaxHold) {
  LeaseMachine lease(at(1s), 9s, 9s, LeaseMachine::Renewal::automatic, 9s);
  lease.started();
  EXPECT_EQ(lease.next_tick(), at(10s));
  EXPECT_TRUE(extend(lease, at(2s), 3s, 3s));
  EXPECT_EQ(lease.next_tick(), at(3s));
}

TEST(LeaseMachine, MaxHoldShorterThanTtlOnlyPreventsRenewals) {
  LeaseMachine lease(at(1s), 9s, 9s, LeaseMachine::Renewal::automatic, 1ms);
  lease.started();
  EXPECT_EQ(lease.next_tick(), at(10s));
  EXPECT_EQ(lease.tick(at(9s), not_called), nothing);
  EXPECT_EQ(lease.tick(at(10s), not_called), lose);
}

TEST(LeaseMachine, MaxHoldDoesNotLimitExtend) {
  LeaseMachine lease(at(1s), 9s, 9s, LeaseMachine::Renewal::automatic, 20s);
  lease.started();
  EXPECT_TRUE(extend(lease, at(2s), 60s, 60s));
  EXPECT_EQ(lease.deadline(), at(62s));
  EXPECT_EQ(lease.next_tick(), at(62s)) << "nothing is renewed after max_hold";
}

TEST(LeaseMachine, SaysWhyItWasLost) {
  const auto reason_after = [](const auto& event) {
    auto lease = plain();
    EXPECT_EQ(lease.loss_reason(), std::nullopt);
    event(lease);
    return lease.loss_reason();
  };
  EXPECT_EQ(reason_after([](auto& lease) { (void)lease.tick(at(10s), not_called); }), LossReason::expired);
  EXPECT_EQ(reason_after([](auto& lease) { (void)lease.extend_refused(at(2s), Missing::expired); }),
            LossReason::expired);
  EXPECT_EQ(reason_after([](auto& lease) { (void)lease.extend_refused(at(2s), Missing::not_found); }),
            LossReason::removed);
  EXPECT_EQ(reason_after([](auto& lease) { (void)lease.lock_is_gone(); }), LossReason::store_lost);
  EXPECT_EQ(reason_after([](auto& lease) { (void)lease.client_closed(); }), LossReason::client_closed);
  EXPECT_EQ(reason_after([](auto& lease) { (void)lease.end(); }), std::nullopt);
  EXPECT_EQ(reason_after([](auto& lease) {
              EXPECT_TRUE(lease.release_begins(at(2s), ReleasedBy::holder));
              (void)lease.released();
            }),
            std::nullopt);
  EXPECT_EQ(reason_after([](auto& lease) {
              EXPECT_TRUE(lease.release_begins(at(2s), ReleasedBy::holder));
              (void)lease.release_refused(at(2s), Missing::not_found);
            }),
            LossReason::removed)
      << "a release found it";
  EXPECT_EQ(reason_after([](auto& lease) {
              (void)lease.lock_is_gone();
              EXPECT_TRUE(lease.release_begins(at(2s), ReleasedBy::holder));
              (void)lease.release_refused(at(2s), Missing::not_found);
            }),
            LossReason::store_lost)
      << "the first reason counts";
  EXPECT_EQ(reason_after([](auto& lease) {
              EXPECT_TRUE(lease.release_begins(at(11s), ReleasedBy::holder));
              (void)lease.release_refused(at(11s), Missing::not_found);
            }),
            LossReason::expired)
      << "some stores forget expired locks";
}

TEST(LeaseMachine, RenewalsUseTtlOfLastExtend) {
  auto lease = renewed();
  EXPECT_EQ(lease.renewal(at(2s))->ttl, 9s);
  EXPECT_TRUE(extend(lease, at(2s), 30s, 30s));
  EXPECT_EQ(lease.renewal(at(2s))->ttl, 30s);
  EXPECT_EQ(lease.next_tick(), at(12s));
}

TEST(LeaseMachine, SlowRenewalLeavesTimeForAnother) {
  EXPECT_EQ(renewed().renewal(at(4s))->timeout, 3s);
  auto lease = renewed();
  begin_extend(lease, at(2s), 3s);
  fail_extend(lease, at(2s), Effect::in_doubt);
  EXPECT_EQ(lease.renewal(at(2s))->timeout, 1s) << "the extend in doubt caps how long the lease is held";
  LeaseMachine brief(at(1s), 2ms, 2ms, LeaseMachine::Renewal::automatic);
  brief.started();
  EXPECT_EQ(brief.renewal(at(1s))->timeout, 1ms);
}

// The thread that sends it may have been blocked.
TEST(LeaseMachine, RenewalIsNotSentOnceLeaseIsNotHeld) {
  EXPECT_TRUE(renewed().renewal(at(9s)));
  EXPECT_FALSE(renewed().renewal(at(10s))) << "the deadline has passed, even if no tick has noticed";
  EXPECT_FALSE(releasing().renewal(at(2s)));
  EXPECT_FALSE(lost().renewal(at(2s)));
}

TEST(LeaseMachine, RetriesFailedRenewalUntilDeadline) {
  auto lease = renewed();
  EXPECT_EQ(lease.tick(at(4s), half), start_renewal);
  lease.extend_begins(at(4s), 9s);
  fail_extend(lease, at(6s), Effect::none, half);
  EXPECT_EQ(lease.deadline(), at(10s));
  const auto retry = lease.next_tick();
  ASSERT_TRUE(retry);
  EXPECT_GT(*retry, at(6s));
  EXPECT_LE(*retry, at(7s));
  EXPECT_EQ(lease.tick(*retry, half), start_renewal);
  lease.extend_begins(*retry, 9s);
  fail_extend(lease, at(9900ms), Effect::none, most);
  EXPECT_EQ(lease.next_tick(), at(10s)) << "the retry must not be later than the deadline";
  EXPECT_EQ(lease.tick(at(10s), not_called), lose);
}

TEST(LeaseMachine, RenewalThatCouldNotStartIsPostponed) {
  auto lease = renewed();
  EXPECT_EQ(lease.tick(at(4s), half), start_renewal);
  lease.free_slot(at(4s), not_called);
  EXPECT_EQ(lease.tick(at(4s), not_called), nothing) << "the retry must be delayed";
  EXPECT_EQ(lease.tick(at(5s), half), start_renewal);
  EXPECT_EQ(lease.deadline(), at(10s));
}

TEST(LeaseMachine, RenewalWaitsForSlot) {
  auto lease = renewed();
  EXPECT_TRUE(lease.take_slot());
  EXPECT_EQ(lease.tick(at(4s), half), nothing) << "a lease has at most one request in flight";
  const auto next = lease.next_tick();
  EXPECT_GT(next, at(4s)) << "the scheduler must not be called all the time";
  lease.free_slot(at(4s), not_called);
  EXPECT_EQ(lease.tick(*next, half), start_renewal);
}

TEST(LeaseMachine, SlotIsTakenOnce) {
  auto lease = renewed();
  EXPECT_TRUE(lease.take_slot());
  EXPECT_FALSE(lease.take_slot());
  lease.extend_begins(at(2s), 9s);
  EXPECT_FALSE(lease.take_slot());
  EXPECT_TRUE(lease.extended(at(2s), 9s, 9s));
  EXPECT_FALSE(lease.take_slot()) << "until the driver frees it";
  lease.extend_begins(at(2s), 9s);
  lease.extend_failed(at(2s), Effect::none, 0);
  EXPECT_FALSE(lease.take_slot()) << "until the driver frees it";
  lease.free_slot(at(2s), not_called);
  EXPECT_EQ(lease.tick(at(5s), half), start_renewal);
  EXPECT_FALSE(lease.take_slot()) << "the renewal has it";
}

TEST(LeaseMachine, ExtendWithoutResultIsInDoubt) {
  auto lease = renewed();
  begin_extend(lease, at(2s), 3s);
  lease.free_slot(at(3s), half);
  EXPECT_EQ(lease.deadline(), at(5s)) << "the extend may have taken effect";
  EXPECT_GT(lease.next_tick(), at(3s));
  EXPECT_LE(lease.next_tick(), at(4s)) << "the renewal is repeated soon";
  EXPECT_TRUE(extend(lease, at(4s), 60s, 60s));
  EXPECT_EQ(lease.deadline(), at(7s)) << "it may still take effect";
}

TEST(LeaseMachine, InDoubtExtendKeepsEarlierDeadline) {
  auto shorter = plain();
  begin_extend(shorter, at(2s), 1s);
  fail_extend(shorter, at(3s), Effect::in_doubt);
  EXPECT_EQ(shorter.deadline(), at(3s)) << "the extend may have taken effect";

  auto longer = plain();
  begin_extend(longer, at(2s), 60s);
  fail_extend(longer, at(3s), Effect::in_doubt);
  EXPECT_EQ(longer.deadline(), at(10s)) << "the extend may have had no effect";

  auto certain = plain();
  begin_extend(certain, at(2s), 1s);
  fail_extend(certain, at(2500ms), Effect::none);
  EXPECT_EQ(certain.deadline(), at(10s));
}

// The extend in doubt may reach the store after the later one, and then replaces the longer time.
TEST(LeaseMachine, ExtendInDoubtCapsLaterDeadlines) {
  auto lease = renewed();
  begin_extend(lease, at(2s), 3s);
  fail_extend(lease, at(3s), Effect::in_doubt);
  EXPECT_TRUE(extend(lease, at(4s), 60s, 60s));
  EXPECT_EQ(lease.deadline(), at(7s));
  EXPECT_EQ(lease.next_tick(), at(5s)) << "renewals must be frequent enough for the shorter time";
  EXPECT_TRUE(extend(lease, at(5s), 60s, 60s));
  EXPECT_EQ(lease.deadline(), at(8s)) << "a reply does not tell whether an earlier request can still take effect";
  EXPECT_EQ(lease.renewal(at(5s))->ttl, 60s) << "the store is asked for the full time";
  EXPECT_TRUE(lease.may_be_locked(at(64'999ms))) << "the store may hold the lock that long";
  EXPECT_FALSE(lease.may_be_locked(at(65s)));
  EXPECT_EQ(lease.tick(at(7s), most), start_renewal);
  EXPECT_LE(lease.next_tick(), at(7200ms)) << "retries must fit in before the deadline";
  lease.free_slot(at(7s), not_called);

  begin_extend(lease, at(6s), 1s);
  fail_extend(lease, at(6s), Effect::none);
  EXPECT_TRUE(extend(lease, at(6s), 60s, 60s));
  EXPECT_EQ(lease.deadline(), at(9s)) << "a request that was not sent cannot take effect later";
}

TEST(LeaseMachine, ShorteningExtendCountsFromWhenItIsSent) {
  auto lease = plain();
  begin_extend(lease, at(2s), 500ms);
  EXPECT_EQ(lease.remaining(at(2s)), 500ms);
  EXPECT_EQ(lease.next_tick(), at(2500ms));
  EXPECT_EQ(lease.tick(at(2500ms), not_called), lose)
      << "the lock may have expired in the store, although there is no reply yet";
}

TEST(LeaseMachine, PausesBetweenRenewalsEvenWithShortTtl) {
  LeaseMachine lease(at(1s), 2ms, 2ms, LeaseMachine::Renewal::automatic);
  EXPECT_EQ(lease.next_tick(), at(1001ms));
}

TEST(LeaseMachine, IsLostIfExtendIsRejected) {
  auto lease = plain();
  begin_extend(lease, at(2s), 9s);
  EXPECT_EQ(lease.extend_refused(at(2s), Missing::not_found), lose);
  EXPECT_EQ(lease.state(), State::lost);
  EXPECT_EQ(lease.extend_refused(at(2s), Missing::not_found), nothing) << "the loss must be reported once";
  EXPECT_FALSE(lease.take_slot());
  lease.free_slot(at(2s), not_called);
  EXPECT_TRUE(lease.take_slot());
}

TEST(LeaseMachine, LateReplyDoesNotReviveIt) {
  auto lease = renewed();
  EXPECT_EQ(lease.tick(at(4s), half), start_renewal);
  lease.extend_begins(at(4s), 9s);
  EXPECT_EQ(lease.tick(at(10s), not_called), lose);
  EXPECT_FALSE(lease.extended(at(4s), 9s, 9s));
  EXPECT_EQ(lease.state(), State::lost);
  EXPECT_EQ(lease.remaining(at(11s)), 0s);

  auto given_up = releasing();
  EXPECT_FALSE(extend(given_up, at(4s), 9s, 9s));
  EXPECT_EQ(given_up.state(), State::releasing);
}

TEST(LeaseMachine, LostDoesNotFireOnceReleaseHasBegun) {
  auto lease = renewed();
  EXPECT_TRUE(lease.release_begins(at(2s), ReleasedBy::holder));
  EXPECT_EQ(lease.next_tick(), std::nullopt);
  EXPECT_EQ(lease.tick(at(60s), not_called), nothing);
  EXPECT_EQ(lease.extend_refused(at(2s), Missing::not_found), nothing);
  EXPECT_EQ(lease.state(), State::releasing);
  EXPECT_FALSE(lease.fires_lost());
}

TEST(LeaseMachine, ReleaseEndsIt) {
  auto lease = releasing();
  EXPECT_EQ(lease.released(), report_end);
  EXPECT_EQ(lease.state(), State::over);
  EXPECT_FALSE(lease.lock_was_lost());
  EXPECT_FALSE(lease.release_begins(at(2s), ReleasedBy::holder)) << "it must not be released twice";
  EXPECT_EQ(lease.state(), State::over);
  EXPECT_EQ(lease.end(), nothing) << "its end must be reported once";
}

TEST(LeaseMachine, EndedLeaseWasHeldUntilThen) {
  auto held = plain();
  EXPECT_EQ(held.end(), report_end);
  EXPECT_EQ(held.state(), State::over);
  EXPECT_EQ(held.next_tick(), std::nullopt);
  EXPECT_FALSE(held.lock_was_lost());
  auto given_up = releasing();
  EXPECT_EQ(given_up.end(), report_end) << "a release that failed does not end the hold";
  auto gone = lost();
  EXPECT_EQ(gone.end(), nothing) << "the loss ended it";
}

TEST(LeaseMachine, ReleaseThatFindsNoLockReportsLossWithoutFiring) {
  auto lease = releasing();
  EXPECT_EQ(lease.release_refused(at(2s), Missing::not_found), report_loss);
  EXPECT_EQ(lease.state(), State::over);
  EXPECT_FALSE(lease.fires_lost());
  EXPECT_TRUE(lease.release_found_loss());
  EXPECT_TRUE(lease.lock_was_lost());
}

TEST(LeaseMachine, FailedReleaseCanBeRepeated) {
  auto lease = releasing();
  lease.release_failed(Effect::none);
  EXPECT_EQ(lease.state(), State::releasing);
  EXPECT_TRUE(lease.release_begins(at(2s), ReleasedBy::holder));
  EXPECT_EQ(lease.release_refused(at(2s), Missing::not_found), report_loss)
      << "the first release certainly did not remove it";
}

// Otherwise an outage of the store at the end of a section would look like a loss of its lock.
TEST(LeaseMachine, LockThatExpiresWhileItIsReleasedIsNotLost) {
  auto lease = plain();
  EXPECT_TRUE(lease.release_begins(at(9s), ReleasedBy::destructor));
  lease.release_failed(Effect::none);
  EXPECT_EQ(lease.release_refused(at(10s), Missing::not_found), report_end);
  EXPECT_FALSE(lease.lock_was_lost());
  EXPECT_EQ(lease.loss_reason(), std::nullopt);

  auto late = plain();
  EXPECT_TRUE(late.release_begins(at(10s), ReleasedBy::destructor));
  EXPECT_EQ(late.release_refused(at(10s), Missing::not_found), report_loss) << "it had expired before";
  EXPECT_TRUE(late.lock_was_lost());
}

TEST(LeaseMachine, ExtendThatCertainlyFailedDoesNotProlongReleasing) {
  auto lease = plain();
  begin_extend(lease, at(9s), 9s);
  fail_extend(lease, at(9s), Effect::none);
  EXPECT_FALSE(lease.may_be_locked(at(10s)));
  begin_extend(lease, at(9s), 9s);
  fail_extend(lease, at(9s), Effect::in_doubt);
  EXPECT_TRUE(lease.may_be_locked(at(10s)));
}

TEST(LeaseMachine, ReleaseInDoubtMayHaveRemovedLock) {
  auto lease = releasing();
  lease.release_failed(Effect::in_doubt);
  lease.release_failed(Effect::none);
  EXPECT_EQ(lease.release_refused(at(2s), Missing::not_found), report_end);
  EXPECT_EQ(lease.state(), State::over);
  EXPECT_FALSE(lease.release_found_loss());
  EXPECT_FALSE(lease.lock_was_lost());
}

TEST(LeaseMachine, LossIsFinalWhateverReleaseFinds) {
  auto refused = lost();
  EXPECT_TRUE(refused.lock_was_lost());
  EXPECT_TRUE(refused.release_begins(at(2s), ReleasedBy::holder));
  EXPECT_EQ(refused.state(), State::releasing);
  EXPECT_EQ(refused.release_refused(at(2s), Missing::not_found), nothing) << "the loss must be reported once";
  EXPECT_TRUE(refused.release_found_loss());
  EXPECT_TRUE(refused.lock_was_lost());

  auto removed = lost();
  EXPECT_TRUE(removed.release_begins(at(2s), ReleasedBy::holder));
  EXPECT_EQ(removed.released(), nothing);
  EXPECT_TRUE(removed.lock_was_lost()) << "its holder was told so";
  EXPECT_TRUE(removed.fires_lost()) << "closing must wait for it";
}

TEST(LeaseMachine, ReleaseIsRepeatedUntilLockHasExpiredInStore) {
  auto lease = plain();
  begin_extend(lease, at(2s), 60s);
  fail_extend(lease, at(3s), Effect::in_doubt);
  EXPECT_TRUE(lease.release_begins(at(2s), ReleasedBy::destructor));
  EXPECT_TRUE(lease.may_be_locked(at(61'999ms))) << "the extend in doubt may have taken effect";
  EXPECT_FALSE(lease.may_be_locked(at(62s)));
  EXPECT_GT(lease.release_delay(at(11s), 1, 0), 0ms);
  EXPECT_LT(lease.release_delay(at(11s), 1, 0), lease.release_delay(at(11s), 4, 0));
  EXPECT_LE(lease.release_delay(at(61'999ms), 10, 0.99), 1ms);
}

TEST(LeaseMachine, PostponedReleaseStartsAgainSoon) {
  for (auto lease : {plain(), lost(), releasing()}) {
    EXPECT_EQ(lease.release_postponed(at(2s)), nothing);
    EXPECT_EQ(lease.state(), State::releasing);
    EXPECT_EQ(lease.next_tick(), at(2005ms));
    EXPECT_EQ(lease.tick(at(2004ms), not_called), nothing);
    EXPECT_EQ(lease.tick(at(2005ms), not_called), start_release);
    EXPECT_EQ(lease.next_tick(), std::nullopt);
    EXPECT_EQ(lease.tick(at(3s), not_called), nothing) << "it must start once";
  }
}

TEST(LeaseMachine, PostponedReleaseCanBeginEarlier) {
  auto lease = plain();
  EXPECT_EQ(lease.release_postponed(at(2s)), nothing);
  EXPECT_TRUE(lease.release_begins(at(2s), ReleasedBy::destructor));
  EXPECT_EQ(lease.next_tick(), std::nullopt);
  EXPECT_EQ(lease.tick(at(3s), not_called), nothing);
}

TEST(LeaseMachine, PostponedReleaseIsGivenUpOnceLockHasExpiredInStore) {
  auto lease = releasing();
  EXPECT_EQ(lease.release_postponed(at(9999ms)), nothing);
  EXPECT_EQ(lease.release_postponed(at(10s)), report_end);
  EXPECT_EQ(lease.state(), State::over);
  EXPECT_EQ(lease.release_postponed(at(5s)), nothing);
  EXPECT_EQ(lease.state(), State::over);
  EXPECT_EQ(lease.next_tick(), std::nullopt);
}

TEST(LeaseMachine, ClosingClientFiresLostOfHeldLeasesOnly) {
  auto held = plain();
  EXPECT_EQ(held.client_closed(),
            (Actions{.start = Actions::Start::release, .fire_lost = true, .report_loss = false, .report_end = true}));
  EXPECT_EQ(held.state(), State::over);
  EXPECT_TRUE(held.fires_lost());
  EXPECT_TRUE(held.lock_was_lost());
  EXPECT_EQ(held.client_closed(), nothing);

  auto given_up = releasing();
  EXPECT_EQ(given_up.client_closed(), (Actions{.start = Actions::Start::release, .report_end = true}));
  EXPECT_FALSE(given_up.fires_lost());

  auto gone = lost();
  EXPECT_EQ(gone.client_closed(), start_release) << "its loss was reported before";
  EXPECT_TRUE(gone.fires_lost()) << "closing must wait for it";
}

TEST(LeaseMachine, ClosingClientLeavesReleaseToRunningDestructor) {
  auto lease = plain();
  EXPECT_TRUE(lease.release_begins(at(2s), ReleasedBy::destructor));
  EXPECT_EQ(lease.client_closed(), nothing);
  EXPECT_EQ(lease.state(), State::releasing);
  EXPECT_EQ(lease.release_postponed(at(2s)), nothing);
  EXPECT_EQ(lease.client_closed(), (Actions{.start = Actions::Start::release, .report_end = true}))
      << "the destructor has no memory for it";
  EXPECT_EQ(lease.tick(at(3s), not_called), nothing);
  EXPECT_EQ(lease.next_tick(), std::nullopt);

  auto due = plain();
  EXPECT_EQ(due.release_postponed(at(2s)), nothing);
  EXPECT_EQ(due.tick(at(3s), not_called), start_release);
  EXPECT_NE(due.client_closed(), nothing) << "the release of the destructor has not begun again";
}

// The reply to a release can arrive after the client was closed.
TEST(LeaseMachine, ReleaseThatEndsAfterClosingCounts) {
  auto removed = lost();
  EXPECT_TRUE(removed.release_begins(at(2s), ReleasedBy::holder));
  EXPECT_EQ(removed.client_closed(), start_release);
  EXPECT_EQ(removed.released(), nothing);
  EXPECT_TRUE(removed.lock_was_lost());

  auto refused = releasing();
  EXPECT_EQ(refused.client_closed(), (Actions{.start = Actions::Start::release, .report_end = true}));
  EXPECT_EQ(refused.release_refused(at(2s), Missing::not_found), nothing) << "its end was reported before";
  EXPECT_TRUE(refused.lock_was_lost());
}

}  // namespace
}  // namespace syncguard::detail
