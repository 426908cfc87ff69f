#include "locks/lease_machine.hpp"

#include "core/durations.hpp"

#include <algorithm>

namespace syncguard {
inline namespace v0_1 {
namespace detail {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds release_pause{5};

}  // namespace

milliseconds LeaseMachine::bounded(milliseconds remaining, milliseconds ttl) noexcept {
  return std::clamp(remaining, milliseconds(0), ttl);
}

LeaseMachine::LeaseMachine(Time sent_at, milliseconds remaining, milliseconds ttl, Renewal renewal,
                           milliseconds max_hold)
    : renewal_(renewal),
      ttl_(ttl),
      latest_expiry_(sent_at + bounded(remaining, ttl)),
      // Longer times than a ttl can be would overflow the clock.
      hold_until_(max_hold > max_ttl ? Time::max() : sent_at + max_hold) {
  hold(sent_at, bounded(remaining, ttl), ttl);
}

void LeaseMachine::hold(Time sent_at, milliseconds remaining, milliseconds ttl) noexcept {
  deadline_ = sent_at + remaining;
  lasts_until_max_hold_ = sent_at + ttl >= hold_until_;
  // After a third of the time, so that two more attempts fit in before the deadline.
  renew_at_ = sent_at + std::max<Time::duration>(Time::duration(remaining) / 3, milliseconds(1));
}

milliseconds LeaseMachine::longest_hold() const noexcept { return std::min(ttl_, shortest_in_doubt_); }

milliseconds LeaseMachine::remaining(Time now) const noexcept {
  if (state_ != State::held || now >= deadline_) return milliseconds(0);
  return std::chrono::duration_cast<milliseconds>(deadline_ - now);
}

bool LeaseMachine::is_counted() const noexcept {
  return (state_ == State::held || state_ == State::releasing) && !fires_lost_;
}

std::optional<LeaseMachine::Time> LeaseMachine::next_tick() const noexcept {
  switch (state_) {
    case State::granted:  // watched before it is started
    case State::held:
      return renews() ? std::min(renew_at_, deadline_) : deadline_;
    case State::releasing:
      if (disposal_ == Disposal::postponed) return release_at_;
      break;
    case State::lost:
    case State::over:
      break;
  }
  return std::nullopt;
}

LeaseMachine::Actions LeaseMachine::tick(Time now, double (*random)()) noexcept {
  if (state_ == State::releasing && disposal_ == Disposal::postponed && now >= release_at_) {
    disposal_ = Disposal::none;
    return {.start = Actions::Start::release};
  }
  if (state_ != State::held) return {};
  if (now >= deadline_) {
    return lose(renewal_ == Renewal::automatic && lasts_until_max_hold_ ? LossReason::max_hold : LossReason::expired);
  }
  if (!renews() || now < renew_at_) return {};
  postpone_renewal(now, random());
  if (!take_slot()) return {};
  return {.start = Actions::Start::renewal};
}

bool LeaseMachine::take_slot() noexcept {
  if (slot_ != Slot::free) return false;
  slot_ = Slot::taken;
  return true;
}

void LeaseMachine::free_slot(Time now, double (*random)()) noexcept {
  // The extend ran out of memory. It may have been sent.
  if (slot_ == Slot::extending) extend_failed(now, Effect::in_doubt, random());
  slot_ = Slot::free;
}

std::optional<LeaseMachine::RenewalRequest> LeaseMachine::renewal(Time now) const noexcept {
  if (remaining(now) == milliseconds(0) || now >= hold_until_) return std::nullopt;
  const auto left = std::chrono::ceil<milliseconds>(hold_until_ - now);
  return RenewalRequest{.ttl = std::min(ttl_, left), .timeout = std::max(longest_hold() / 3, milliseconds(1))};
}

void LeaseMachine::extend_begins(Time sent_at, milliseconds ttl) noexcept {
  slot_ = Slot::extending;
  extending_ttl_ = ttl;
  deadline_before_extend_ = deadline_;
  expiry_before_extend_ = latest_expiry_;
  deadline_ = std::min(deadline_, sent_at + ttl);
  latest_expiry_ = std::max(latest_expiry_, sent_at + ttl);
}

bool LeaseMachine::extended(Time sent_at, milliseconds remaining, milliseconds ttl) noexcept {
  slot_ = Slot::taken;
  ttl_ = ttl;
  hold(sent_at, std::min(bounded(remaining, ttl), shortest_in_doubt_), ttl);
  return state_ == State::held;
}

LeaseMachine::Actions LeaseMachine::extend_refused(Time now, Missing reason) noexcept {
  slot_ = Slot::taken;
  return lose(reason_of(now, reason));
}

// Some stores forget a lock as soon as it has expired.
LossReason LeaseMachine::reason_of(Time now, Missing missing) const noexcept {
  return missing == Missing::expired || now >= deadline_ ? LossReason::expired : LossReason::removed;
}

void LeaseMachine::extend_failed(Time now, Effect effect, double random) noexcept {
  slot_ = Slot::taken;
  if (effect == Effect::none) {
    deadline_ = deadline_before_extend_;
    latest_expiry_ = expiry_before_extend_;
  } else {
    shortest_in_doubt_ = std::min(shortest_in_doubt_, extending_ttl_);
  }
  postpone_renewal(now, random);
}

void LeaseMachine::postpone_renewal(Time now, double random) noexcept {
  const milliseconds pause = std::clamp(longest_hold() / 20, milliseconds(5), milliseconds(1000));
  renew_at_ = now + std::chrono::duration_cast<Time::duration>(pause * (0.5 + random / 2));
}

bool LeaseMachine::release_begins(Time now, ReleasedBy by) noexcept {
  if (state_ == State::over) return false;
  if (state_ == State::held && now < deadline_) released_in_time_ = true;
  state_ = State::releasing;
  if (by == ReleasedBy::destructor) disposal_ = Disposal::running;
  return true;
}

LeaseMachine::Actions LeaseMachine::released() noexcept {
  release_ = Release::succeeded;
  return end();
}

LeaseMachine::Actions LeaseMachine::release_refused(Time sent_at, Missing reason) noexcept {
  auto actions = end();
  // The holder had stopped working by then.
  const bool may_have_expired_since = released_in_time_ && sent_at >= deadline_;
  if (release_ == Release::in_doubt || may_have_expired_since) return actions;
  release_ = Release::found_loss;
  if (!loss_reason_) loss_reason_ = reason_of(sent_at, reason);
  actions.report_loss = actions.report_end;
  return actions;
}

void LeaseMachine::release_failed(Effect effect) noexcept {
  if (effect == Effect::in_doubt) release_ = Release::in_doubt;
}

std::chrono::nanoseconds LeaseMachine::release_delay(Time now, int failures, double random) const noexcept {
  return std::min<std::chrono::nanoseconds>(core::retry_delay(WaitOptions{}, failures, random), latest_expiry_ - now);
}

LeaseMachine::Actions LeaseMachine::release_postponed(Time now) noexcept {
  if (state_ == State::over) return {};
  if (!may_be_locked(now)) return end();
  state_ = State::releasing;
  disposal_ = Disposal::postponed;
  release_at_ = now + release_pause;
  return {};
}

LeaseMachine::Actions LeaseMachine::end() noexcept {
  const Actions actions{.report_end = is_counted()};
  state_ = State::over;
  return actions;
}

LeaseMachine::Actions LeaseMachine::client_closed() noexcept {
  if (state_ == State::over || disposal_ == Disposal::running) return {};
  const bool fire = state_ == State::held;
  auto actions = end();
  actions.start = Actions::Start::release;
  actions.fire_lost = fire;
  fires_lost_ = fires_lost_ || fire;
  if (fire) loss_reason_ = LossReason::client_closed;
  return actions;
}

LeaseMachine::Actions LeaseMachine::lose(LossReason reason) noexcept {
  if (state_ != State::held) return {};
  loss_reason_ = reason;
  state_ = State::lost;
  fires_lost_ = true;
  return {.fire_lost = true, .report_loss = true, .report_end = true};
}

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
