#include "locks/acquire_loop.hpp"

#include "core/durations.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace detail {
namespace {

AcquireLoop::Time saturating_add(AcquireLoop::Time start, std::chrono::milliseconds duration) {
  // Compared in milliseconds, because milliseconds::max() in nanoseconds would overflow.
  const auto room = std::chrono::floor<std::chrono::milliseconds>(AcquireLoop::Time::max() - start);
  return duration < room ? start + duration : AcquireLoop::Time::max();
}

}  // namespace

AcquireLoop::AcquireLoop(const WaitOptions& options, Time now, Start start, std::function<double()> random)
    : options_(options),
      start_(now),
      deadline_(saturating_add(now, options.timeout)),
      random_(std::move(random)),
      step_(start == Start::first_in_queue ? Step::attempt : Step::wait_in_queue),
      wait_until_(deadline_) {
  if (step_ == Step::attempt) begin_attempt();
}

void AcquireLoop::begin_attempt() noexcept {
  step_ = Step::attempt;
  attempted_since_wait_ = true;
  ++attempts_;
}

void AcquireLoop::first_in_queue() noexcept {
  // Another waiter was ahead, so the key is contended: an attempt before joining is useless.
  step_ = Step::join;
  join_tried_since_wait_ = true;
}

void AcquireLoop::contended(Time now, const Contended& reply) {
  in_doubt_ = false;
  last_attempt_failed_ = false;
  // At least 1 ms, so that a reply that rounds to zero does not make the loop spin.
  free_at_ = saturating_add(now, std::max(reply.free_in, std::chrono::milliseconds(1)));
  sleep_or_give_up(now);
  if (step_ == Step::sleep && queue_exists_ && !join_tried_since_wait_) {
    step_ = Step::join;
    join_tried_since_wait_ = true;
  }
}

void AcquireLoop::failed(Time now, const LockError& error) {
  // Stays in doubt until a reply arrives: a later attempt without effect says nothing about an earlier one in doubt.
  in_doubt_ = in_doubt_ || error.in_doubt();
  if (!error.retryable()) {
    fail(error);
    return;
  }
  last_transient_ = error;
  last_attempt_failed_ = true;
  free_at_ = Time::max();
  sleep_or_give_up(now);
}

void AcquireLoop::joined(Time now, const Joined& queue) {
  queue_notices_expiry_ = queue.notices_expiry;
  if (queue.free_in) {
    contended(now, {*queue.free_in});
  } else {
    begin_attempt();
  }
}

void AcquireLoop::not_joined(Time now, JoinFailure failure) {
  if (failure == JoinFailure::permanent) queue_exists_ = false;
  queue_notices_expiry_ = false;
  if (attempted_since_wait_) {
    sleep_or_give_up(now);
  } else {
    begin_attempt();
  }
}

void AcquireLoop::woken() noexcept {
  join_tried_since_wait_ = false;
  begin_attempt();
}

void AcquireLoop::timer(Time now) {
  if (step_ == Step::wait_in_queue) {
    time_out(now, ": other waiters of this client were ahead in the queue");
    return;
  }
  join_tried_since_wait_ = false;
  attempted_since_wait_ = false;
  if (now >= deadline_) {
    last_attempt_ = true;
    begin_attempt();
  } else if (retry_at_ && now >= *retry_at_) {
    // Never reaches unlimited_retries, so that an unlimited wait never ends here.
    retries_ = std::min(retries_ + 1, WaitOptions::unlimited_retries - 1);
    retry_at_.reset();
    if (queue_exists_ && !last_attempt_failed_) {
      step_ = Step::join;
      join_tried_since_wait_ = true;
    } else {
      begin_attempt();
    }
  } else {
    begin_attempt();
  }
}

void AcquireLoop::stopped() { fail(LockError(ErrorCode::aborted, "a stop was requested while waiting for the lock")); }

bool AcquireLoop::can_wait(Time now) const noexcept {
  return !last_attempt_ && now < deadline_ && (retry_at_ || retries_ < options_.max_retries);
}

void AcquireLoop::sleep_or_give_up(Time now) {
  if (!can_wait(now)) {
    time_out(now, last_attempt_ || now >= deadline_ ? "" : ": the retry limit was reached");
    return;
  }
  if (!retry_at_) {
    const auto delay = core::retry_delay(options_, retries_ + 1, random_());
    retry_at_ = delay < deadline_ - now ? now + delay : deadline_;
  }
  wait_until_ = queue_notices_expiry_ ? *retry_at_ : std::min(*retry_at_, free_at_);
  step_ = Step::sleep;
}

void AcquireLoop::fail(const LockError& error) {
  error_ = in_doubt_ ? error.as_in_doubt() : error;
  step_ = Step::fail;
}

void AcquireLoop::time_out(Time now, const char* why) {
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - start_);
  std::string message = "timed out waiting for the lock after " + std::to_string(attempts_) +
                        (attempts_ == 1 ? " attempt (" : " attempts (") + std::to_string(waited.count()) + " ms)" + why;
  ErrorContext context;
  if (last_transient_) {
    message += "; last error: ";
    message += last_transient_->what();
    context.cause = std::make_exception_ptr(*last_transient_);
  }
  fail(LockError(ErrorCode::acquisition_timeout, message, Effect::none, std::move(context)));
}

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
