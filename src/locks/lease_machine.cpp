#include "locks/lease_machine.hpp"

#include <algorithm>

namespace syncguard {
inline namespace v0_1 {
namespace detail {
namespace {

using std::chrono::milliseconds;

}  // namespace

milliseconds LeaseMachine::bounded(milliseconds remaining, milliseconds ttl) noexcept {
  return std::clamp(remaining, milliseconds(0), ttl);
}

LeaseMachine::LeaseMachine(Time sent_at, milliseconds remaining, milliseconds ttl, Renewal renewal)
    : renewal_(renewal), ttl_(ttl), latest_expiry_(sent_at + bounded(remaining, ttl)) {
  hold(sent_at, bounded(remaining, ttl));
}

void LeaseMachine::hold(Time sent_at, milliseconds remaining) noexcept {
  deadline_ = sent_at + remaining;
  // After a third of the time, so that two more attempts fit in before the deadline.
  renew_at_ = sent_at + std::max<Time::duration>(Time::duration(remaining) / 3, milliseconds(1));
}

milliseconds LeaseMachine::longest_hold() const noexcept { return std::min(ttl_, shortest_in_doubt_); }

milliseconds LeaseMachine::remaining(Time now) const noexcept {
  if (state_ != State::held || now >= deadline_) return milliseconds(0);
  return std::chrono::duration_cast<milliseconds>(deadline_ - now);
}

std::optional<LeaseMachine::Time> LeaseMachine::next_tick() const noexcept {
  if (state_ != State::held) return std::nullopt;
  if (renewal_ == Renewal::automatic && !extending_) return std::min(renew_at_, deadline_);
  return deadline_;
}

LeaseMachine::Due LeaseMachine::tick(Time now) noexcept {
  if (state_ != State::held) return Due::nothing;
  if (now >= deadline_) {
    lose();
    return Due::lost;
  }
  return renewal_ == Renewal::automatic && !extending_ && now >= renew_at_ ? Due::renewal : Due::nothing;
}

void LeaseMachine::extend_begins(Time sent_at, milliseconds ttl) noexcept {
  extending_ = true;
  extending_ttl_ = ttl;
  deadline_before_extend_ = deadline_;
  deadline_ = std::min(deadline_, sent_at + ttl);
  latest_expiry_ = std::max(latest_expiry_, sent_at + ttl);
}

void LeaseMachine::extended(Time sent_at, milliseconds remaining, milliseconds ttl) noexcept {
  extending_ = false;
  ttl_ = ttl;
  hold(sent_at, std::min(bounded(remaining, ttl), shortest_in_doubt_));
}

bool LeaseMachine::extend_refused() noexcept {
  extending_ = false;
  return lose();
}

void LeaseMachine::extend_failed(Time now, Effect effect, double random) noexcept {
  extending_ = false;
  if (effect == Effect::none) {
    deadline_ = deadline_before_extend_;
  } else {
    shortest_in_doubt_ = std::min(shortest_in_doubt_, extending_ttl_);
  }
  postpone_renewal(now, random);
}

void LeaseMachine::postpone_renewal(Time now, double random) noexcept {
  const milliseconds pause = std::clamp(longest_hold() / 20, milliseconds(5), milliseconds(1000));
  renew_at_ = now + std::chrono::duration_cast<Time::duration>(pause * (0.5 + random / 2));
}

void LeaseMachine::release_begins() noexcept {
  if (state_ != State::over) state_ = State::releasing;
}

bool LeaseMachine::closed() noexcept {
  const bool fire = lose();
  state_ = State::over;
  return fire;
}

bool LeaseMachine::lose() noexcept {
  if (state_ != State::held) return false;
  state_ = State::lost;
  return true;
}

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
