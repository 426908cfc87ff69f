#include "locks/lease_state.hpp"

#include "async/spawn.hpp"
#include "core/validation.hpp"
#include "locks/client.hpp"

#include <algorithm>
#include <utility>

namespace syncguard::detail {

using async::BootClock;

LeaseState::LeaseState(std::shared_ptr<Client> client, std::shared_ptr<const Callbacks> callbacks, Key key,
                       const LockId& id, const Grant& grant)
    : client_(std::move(client)),
      callbacks_(std::move(callbacks)),
      key_(std::move(key)),
      id_(id),
      fence_(grant.reply.fence),
      expires_at_(grant.reply.expires_at),
      machine_(grant.sent_at, grant.reply.remaining, grant.ttl, grant.renewal) {}

void LeaseState::start() {
  const std::lock_guard lock(mutex_);
  reschedule();
}

Timestamp LeaseState::expires_at() const noexcept {
  const std::lock_guard lock(mutex_);
  return expires_at_;
}

std::chrono::milliseconds LeaseState::remaining() const noexcept {
  const std::lock_guard lock(mutex_);
  return machine_.remaining(BootClock::now());
}

std::chrono::nanoseconds LeaseState::deadline() const noexcept {
  const std::lock_guard lock(mutex_);
  return machine_.deadline().time_since_epoch();
}

bool LeaseState::is_over() const noexcept {
  const std::lock_guard lock(mutex_);
  return machine_.state() == LeaseMachine::State::over;
}

void LeaseState::reschedule() {
  if (machine_.state() == LeaseMachine::State::over) {
    client_->scheduler().remove(*this);
  } else {
    client_->scheduler().schedule(shared_from_this(), machine_.next_tick().value_or(LeaseScheduler::Time::max()));
  }
}

void LeaseState::tick() {
  std::unique_lock lock(mutex_);
  switch (machine_.tick(BootClock::now())) {
    case LeaseMachine::Due::nothing:
      break;
    case LeaseMachine::Due::lost:
      fire_lost();
      break;
    case LeaseMachine::Due::renewal:
      if (turn_taken_) break;  // a request of the application's is under way, and reschedules when it is over
      turn_taken_ = true;
      renewal_stop_ = std::stop_source();
      const auto stop = renewal_stop_.get_token();
      lock.unlock();
      async::spawn(client_->executor(), renew(shared_from_this(), stop));
      return;
  }
  reschedule();
}

void LeaseState::fire_lost() {
  client_->notify([lost = lost_]() mutable { lost.request_stop(); });
}

// ---------------------------------------------------------------------------------------------------------------------
// Turns

class LeaseState::Turn {
 public:
  explicit Turn(LeaseState& lease) : lease_(lease) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { lease_.give_turn_back(); }

 private:
  LeaseState& lease_;
};

asio::awaitable<void> LeaseState::take_turn(const CallLimits& limits) {
  for (;;) {
    std::shared_ptr<async::WakeUp> wake_up;
    {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(turn_taken_, true)) co_return;
      wake_up = std::make_shared<async::WakeUp>();
      waiting_for_turn_.push_back(wake_up);
    }
    switch (co_await wake_up->wait(limits.deadline, limits.stop)) {
      case async::WakeUp::Reason::woken:
        break;
      case async::WakeUp::Reason::timed_out:
        throw LockError(ErrorCode::network_timeout, "another request of the same lease did not end in time")
            .about(key_.str(), id_.view());
      case async::WakeUp::Reason::stopped:
        throw LockError(ErrorCode::aborted, "a stop was requested").about(key_.str(), id_.view());
    }
  }
}

void LeaseState::give_turn_back() noexcept {
  std::vector<std::shared_ptr<async::WakeUp>> waiting;
  {
    const std::lock_guard lock(mutex_);
    turn_taken_ = false;
    waiting.swap(waiting_for_turn_);
    reschedule();
  }
  for (const auto& wake_up : waiting) wake_up->wake();
}

// ---------------------------------------------------------------------------------------------------------------------
// Requests

asio::awaitable<bool> LeaseState::send_extend(std::chrono::milliseconds ttl, const CallLimits& limits) {
  const auto sent_at = BootClock::now();
  {
    const std::lock_guard lock(mutex_);
    machine_.extend_begins(sent_at, ttl);
    reschedule();
  }
  std::optional<ExtendReply> reply;
  std::exception_ptr error;
  Effect effect = Effect::none;
  try {
    reply = co_await client_->checked(client_->backend().extend(id_, ttl, limits), key_.str(), id_.view());
  } catch (const LockError& failure) {
    error = std::current_exception();
    effect = failure.in_doubt() ? Effect::in_doubt : Effect::none;
  }

  if (error) {
    const double random = client_->random(*callbacks_);
    const std::lock_guard lock(mutex_);
    machine_.extend_failed(BootClock::now(), effect, random);
    std::rethrow_exception(error);
  }
  const std::lock_guard lock(mutex_);
  if (const auto* extended = std::get_if<Extended>(&*reply)) {
    expires_at_ = extended->expires_at;
    machine_.extended(sent_at, extended->remaining, ttl);
    // It may have been given up meanwhile, or have been lost before this answer came; that stands.
    const bool held = machine_.state() == LeaseMachine::State::held;
    if (held && callbacks_->on_extended) {
      client_->notify([self = shared_from_this(), deadline = machine_.deadline().time_since_epoch()] {
        self->callbacks_->on_extended({self->key_.str(), self->id_.view(), deadline});
      });
    }
    co_return held;
  }
  if (machine_.extend_refused()) fire_lost();
  co_return false;
}

asio::awaitable<void> LeaseState::renew(std::shared_ptr<LeaseState> self, std::stop_token stop) {
  const Turn turn(*self);
  try {
    const Client::Call call(*self->client_, stop);
    const auto ttl = self->machine_.ttl();  // changes only with the turn held
    CallLimits limits = call.limits();
    // No single renewal may use up the time in which it could be tried again.
    limits.deadline =
        std::min(limits.deadline, std::chrono::steady_clock::now() + std::max(ttl / 3, std::chrono::milliseconds(1)));
    co_await self->send_extend(ttl, limits);
  } catch (const LockError& error) {
    if (error.code() != ErrorCode::aborted) {
      self->client_->log().warn(
          "renewal",
          std::string("a lease could not be renewed and is tried again until its deadline: ") + error.what());
    }
    // A client that is being closed refuses it before it begins, and would be asked again at once.
    const double random = self->client_->random(*self->callbacks_);
    const std::lock_guard lock(self->mutex_);
    self->machine_.put_renewal_off(BootClock::now(), random);
  }
}

asio::awaitable<bool> LeaseState::extend(std::chrono::milliseconds ttl, std::stop_token stop) {
  core::validate_ttl(ttl);
  const Client::Call call(*client_, stop);
  const CallLimits limits = call.limits();
  co_await take_turn(limits);
  const Turn turn(*this);
  {
    const std::lock_guard lock(mutex_);
    if (machine_.state() != LeaseMachine::State::held) co_return false;
  }
  co_return co_await send_extend(ttl, limits);
}

void LeaseState::stop_renewing() {
  std::stop_source renewal(std::nostopstate);
  {
    const std::lock_guard lock(mutex_);
    machine_.release_begins();
    renewal = renewal_stop_;
    reschedule();
  }
  // Without the mutex: whatever listens to it runs inside.
  renewal.request_stop();
}

asio::awaitable<bool> LeaseState::send_release(const CallLimits& limits) {
  try {
    const auto reply = co_await client_->checked(client_->backend().release(id_, limits), key_.str(), id_.view());
    const std::lock_guard lock(mutex_);
    machine_.end();
    co_return std::holds_alternative<Released>(reply);
  } catch (const LockError& error) {
    const std::lock_guard lock(mutex_);
    release_in_doubt_ = release_in_doubt_ || error.in_doubt();
    throw;
  }
}

asio::awaitable<bool> LeaseState::release(std::stop_token stop) {
  if (is_over()) co_return false;
  const Client::Call call(*client_, stop);
  const CallLimits limits = call.limits();
  stop_renewing();
  co_await take_turn(limits);
  const Turn turn(*this);
  if (is_over()) co_return false;
  co_return co_await send_release(limits);
}

asio::awaitable<std::optional<LockError>> LeaseState::dispose() {
  if (is_over()) co_return std::nullopt;
  std::optional<LockError> failure;
  try {
    const Client::Operation operation(*client_, Client::Operation::Purpose::tidying_up);
    const CallLimits limits = client_->disposal_limits();
    stop_renewing();
    co_await take_turn(limits);
    const Turn turn(*this);
    if (!is_over() && !was_released_for_close()) {
      const bool was_ours = co_await send_release(limits);
      if (!was_ours && !may_have_been_released()) {
        failure =
            LockError(ErrorCode::internal, "the lock was gone when it was released: the section outlived its lock")
                .about(key_.str(), id_.view());
      }
    }
  } catch (const LockError& error) {
    // Aborted means that the client was closed, which tried to release this lease itself.
    if (error.code() != ErrorCode::aborted) failure = error;
  }
  // Whatever came of it, nobody is left to try again.
  end();
  co_return failure;
}

void LeaseState::end() {
  const std::lock_guard lock(mutex_);
  machine_.end();
  reschedule();
}

void LeaseState::detach() {
  stop_renewing();
  end();
}

asio::awaitable<void> LeaseState::release_for_close(const CallLimits& limits) {
  try {
    co_await take_turn(limits);
    const Turn turn(*this);
    if (is_over()) co_return;
    co_await client_->checked(client_->backend().release(id_, limits), key_.str(), id_.view());
    const std::lock_guard lock(mutex_);
    released_for_close_ = true;
  } catch (const LockError& error) {
    client_->notify([self = shared_from_this(), error] { self->report(error); });
  }
}

bool LeaseState::was_released_for_close() const noexcept {
  const std::lock_guard lock(mutex_);
  return released_for_close_;
}

bool LeaseState::may_have_been_released() const noexcept {
  const std::lock_guard lock(mutex_);
  return release_in_doubt_;
}

void LeaseState::client_closed() {
  const std::lock_guard lock(mutex_);
  if (machine_.closed()) fire_lost();
}

void LeaseState::report(const LockError& error) const noexcept {
  if (!callbacks_->on_release_error) return;
  try {
    callbacks_->on_release_error(error, {key_.str(), id_.view()});
  } catch (...) {  // NOLINT(bugprone-empty-catch): by contract
  }
}

}  // namespace syncguard::detail
