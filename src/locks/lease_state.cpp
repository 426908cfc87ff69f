#include "locks/lease_state.hpp"

#include "async/spawn.hpp"
#include "core/durations.hpp"
#include "core/validation.hpp"
#include "locks/client.hpp"

#include <asio/post.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

namespace {

EventReason event_reason_of(std::optional<LossReason> reason) noexcept {
  return reason == LossReason::removed || reason == LossReason::store_lost ? EventReason::not_found
                                                                           : EventReason::expired;
}

// How often closing checks whether lost() has fired: a stop_source notifies only its callbacks, and those may block.
constexpr std::chrono::milliseconds lost_check{1};

// Between attempts of release_with_retries: its caller waits for the result, and others for the key.
constexpr std::chrono::seconds longest_pause{1};

const char* advice_on(std::optional<LossReason> reason) noexcept {
  switch (reason.value_or(LossReason::expired)) {
    case LossReason::expired:
      return "its ttl had passed, because it was not renewed in time; use auto_extend or a longer ttl, and watch "
             "lost()";
    case LossReason::max_hold:
      return "it was held for max_hold; use a longer max_hold, and watch lost()";
    case LossReason::removed:
      return "it was broken, released by its id, or deleted";
    case LossReason::store_lost:
      return "the store has lost its locks";
    case LossReason::client_closed:
      return "its client was closed";
  }
  return "";
}

}  // namespace

class LeaseState::Loss final : public async::CallbackThreads::Callback {
 public:
  [[nodiscard]] std::stop_token token() const noexcept { return source_.get_token(); }

 private:
  void run() override { source_.request_stop(); }

  std::stop_source source_;
};

LeaseState::LeaseState(std::shared_ptr<Client> client, std::shared_ptr<const Callbacks> callbacks, Key key,
                       const LockId& id, const Grant& grant)
    : client_(std::move(client)),
      callbacks_(std::move(callbacks)),
      key_(std::move(key)),
      id_(id),
      fence_(grant.reply.fence),
      loss_(std::make_shared<Loss>()),
      sent_at_(grant.sent_at),
      expires_at_(grant.reply.expires_at),
      machine_(grant.sent_at, grant.reply.remaining, grant.ttl, grant.renewal, grant.max_hold) {}

LeaseState::~LeaseState() {
  // Still held if the application's executor stopped before the lock was released.
  if (!client_->is_forked()) apply(machine_.end());
}

bool LeaseState::start() {
  const std::lock_guard lock(mutex_);
  if (!client_->scheduler().schedule(shared_from_this(), machine_.next_tick().value_or(LeaseScheduler::Time::max()))) {
    apply(machine_.end());
    return false;
  }
  client_->add_reference();
  keeps_client_open_ = true;
  machine_.started();
  if (auto* const counters = client_->counters()) counters->lease_begins();
  return true;
}

void LeaseState::drop_client(Client::Closing closing) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(keeps_client_open_, false)) return;
  }
  client_->remove_reference(closing);
}

bool LeaseState::drop_client_if_over(Client::Closing closing) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (machine_.state() != LeaseMachine::State::over) return false;
    if (!std::exchange(keeps_client_open_, false)) return true;
  }
  client_->remove_reference(closing);
  return true;
}

// The next four may be called in a forked child, where the mutex may have been copied locked.

Timestamp LeaseState::expires_at() const noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!client_->is_forked()) lock.lock();  // in a child no other thread changes it
  return expires_at_;
}

std::chrono::milliseconds LeaseState::remaining() const noexcept {
  if (client_->is_forked()) return {};
  const std::lock_guard lock(mutex_);
  return machine_.remaining(BootClock::now());
}

BootClock::time_point LeaseState::deadline() const noexcept {
  if (client_->is_forked()) return {};
  const std::lock_guard lock(mutex_);
  return machine_.deadline();
}

bool LeaseState::lock_was_lost() const noexcept {
  const std::lock_guard lock(mutex_);
  return machine_.lock_was_lost();
}

std::optional<LossReason> LeaseState::loss_reason() const noexcept {
  if (client_->is_forked()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return machine_.loss_reason();
}

bool LeaseState::is_over() const noexcept {
  if (client_->is_forked()) return true;
  const std::lock_guard lock(mutex_);
  return machine_.state() == LeaseMachine::State::over;
}

std::stop_token LeaseState::lost() const noexcept { return loss_->token(); }

bool LeaseState::loss_is_untold() const noexcept {
  const std::lock_guard lock(mutex_);
  return machine_.fires_lost() && !loss_->token().stop_requested();
}

void LeaseState::reschedule() noexcept {
  if (client_->is_forked()) return;
  if (machine_.state() == LeaseMachine::State::over) {
    client_->scheduler().remove(*this);
    return;
  }
  client_->scheduler().schedule(shared_from_this(), machine_.next_tick().value_or(LeaseScheduler::Time::max()));
}

void LeaseState::tick() noexcept {
  using Start = LeaseMachine::Actions::Start;
  std::unique_lock lock(mutex_);
  const auto actions = machine_.tick(BootClock::now(), core::random_fraction);
  apply(actions);
  if (actions.start == Start::renewal) {
    start_renewal(std::move(lock));
    return;
  }
  reschedule();
  lock.unlock();
  if (actions.fire_lost) drop_client_soon();
  if (actions.start != Start::release) return;
  try {
    asio::post(client_->executor(), [self = shared_from_this()] { start_disposal(self); });
  } catch (...) {
    dispose_later();
  }
}

void LeaseState::lock_is_gone() noexcept {
  std::unique_lock lock(mutex_);
  const auto actions = machine_.lock_is_gone();
  apply(actions);
  reschedule();
  lock.unlock();
  if (actions.fire_lost) drop_client_soon();
}

void LeaseState::drop_client_soon() noexcept {
  try {
    asio::post(client_->executor(), [self = shared_from_this()] { self->drop_client(Client::Closing::in_background); });
  } catch (...) {
    drop_client(Client::Closing::in_background);
  }
}

void LeaseState::apply(const LeaseMachine::Actions& actions) noexcept {
  if (actions.fire_lost) client_->notify_lost(loss_);
  if (actions.report_loss) {
    observe(EventType::lost, Outcome::failed(event_reason_of(machine_.loss_reason())), BootClock::now() - sent_at_);
  }
  if (!actions.report_end) return;
  if (client_->is_observed()) observe(EventType::held, {}, BootClock::now() - sent_at_);
  if (auto* const counters = client_->counters()) counters->lease_ends();
}

void LeaseState::observe(EventType type, const Outcome& outcome, std::chrono::nanoseconds duration) const noexcept {
  client_->observe({type, outcome, duration, key_.str(), id_.view()});
}

// ---------------------------------------------------------------------------------------------------------------------
// The slot for the request

class LeaseState::RequestSlot {
 public:
  // The slot is taken.
  explicit RequestSlot(std::shared_ptr<LeaseState> lease) noexcept : lease_(std::move(lease)) {}
  RequestSlot(RequestSlot&&) noexcept = default;
  RequestSlot& operator=(RequestSlot&&) = delete;
  ~RequestSlot() {
    if (lease_) lease_->free_slot();
  }

  [[nodiscard]] LeaseState& lease() const noexcept { return *lease_; }

 private:
  std::shared_ptr<LeaseState> lease_;
};

std::optional<LeaseMachine::State> LeaseState::try_take_slot() {
  const std::lock_guard lock(mutex_);
  if (!machine_.take_slot()) return std::nullopt;
  return machine_.state();
}

asio::awaitable<LeaseMachine::State> LeaseState::take_slot(const CallLimits& limits) {
  for (;;) {
    std::optional<async::Event> freed;
    {
      const std::lock_guard lock(mutex_);
      if (machine_.take_slot()) co_return machine_.state();
      if (!slot_is_free_) slot_is_free_.emplace();
      freed = slot_is_free_;
    }
    try {
      co_await freed->wait(limits, "timed out waiting for another request of the same lease");
    } catch (const LockError& error) {
      throw error.about(key_.str(), id_.view());
    }
  }
}

void LeaseState::free_slot() noexcept {
  if (client_->is_forked()) return;  // the fork may have copied the mutex locked
  const std::lock_guard lock(mutex_);
  machine_.free_slot(BootClock::now(), core::random_fraction);
  if (const auto freed = std::exchange(slot_is_free_, std::nullopt)) freed->set();
  reschedule();
}

// ---------------------------------------------------------------------------------------------------------------------
// Requests

asio::awaitable<LeaseState::ExtendResult> LeaseState::send_extend(std::chrono::milliseconds ttl,
                                                                  const CallLimits& limits) {
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
    reply = co_await client_->checked(client_->backend().extend(id_, ttl, limits), key_.str(), id_.view(),
                                      EventType::extend);
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
  std::unique_lock lock(mutex_);
  if (const auto* extended = std::get_if<Extended>(&*reply)) {
    expires_at_ = extended->expires_at;
    const bool held = machine_.extended(sent_at, extended->remaining, ttl);
    const auto deadline = machine_.deadline();
    lock.unlock();
    if (held && callbacks_->on_extended) {
      client_->notify([self = shared_from_this(), deadline] {
        self->callbacks_->on_extended({self->key_.str(), self->id_.view(), deadline});
      });
    }
    co_return ExtendResult{held, std::nullopt};
  }
  const auto missing = std::get<Missing>(*reply);
  const auto actions = machine_.extend_refused(BootClock::now(), missing);
  apply(actions);
  lock.unlock();
  if (actions.fire_lost) drop_client(Client::Closing::in_background);
  co_return ExtendResult{false, reason_of(missing)};
}

void LeaseState::start_renewal(std::unique_lock<std::mutex> lock) noexcept {
  RequestSlot slot(shared_from_this());
  try {
    renewal_stop_ = std::stop_source();
    auto stop = renewal_stop_.get_token();
    // The deadline counts even if the executor never runs the renewal.
    reschedule();
    lock.unlock();
    asio::post(client_->executor(), [slot = std::move(slot), stop = std::move(stop)]() mutable {
      const auto executor = slot.lease().client_->executor();
      try {
        async::spawn(executor, renew(std::move(slot), std::move(stop)));
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the next renewal is scheduled
      }
    });
  } catch (...) {
    if (lock) lock.unlock();  // before the slot is freed
  }
}

asio::awaitable<void> LeaseState::renew(RequestSlot slot, std::stop_token stop) {
  auto* const self = &slot.lease();
  const auto start = std::chrono::steady_clock::now();
  const auto observe = [&](const Outcome& outcome) {
    self->observe(EventType::renewed, outcome, std::chrono::steady_clock::now() - start);
  };
  try {
    const Client::Call call(*self->client_, stop);
    CallLimits limits = call.limits();
    std::optional<LeaseMachine::RenewalRequest> renewal;
    {
      const std::lock_guard lock(self->mutex_);
      renewal = self->machine_.renewal(BootClock::now());
    }
    if (!renewal) co_return;
    limits.deadline = std::min(limits.deadline, start + renewal->timeout);
    const auto result = co_await self->send_extend(renewal->ttl, limits);
    observe(result.refusal ? Outcome::failed(*result.refusal) : Outcome{});
  } catch (const LockError& error) {
    // A renewal that is aborted makes way for a release.
    if (error.code() == ErrorCode::aborted) co_return;
    observe(Outcome::failed(error.code()));
    self->warn("renewal", "a lease could not be renewed; retrying until its deadline", error);
  } catch (const std::bad_alloc&) {
    observe(Outcome::failed(ErrorCode::internal));
  }
}

void LeaseState::warn(const char* kind, const char* what, const LockError& error) const noexcept {
  try {
    client_->log().warn(kind, std::string(what) + ": " + error.what());
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): retried all the same
  }
}

asio::awaitable<bool> LeaseState::extend(std::chrono::milliseconds ttl, Caller caller) {
  core::validate_ttl(ttl);
  if (!client_->is_forked()) {
    // Checked before the client is used: a lost lease may have been the last to keep its client open.
    const std::lock_guard lock(mutex_);
    if (machine_.state() != LeaseMachine::State::held) co_return false;
  }
  const Client::Call call(*client_, caller);
  const CallLimits limits = call.limits();
  const auto state = co_await take_slot(limits);
  const RequestSlot slot(shared_from_this());
  if (state != LeaseMachine::State::held) co_return false;
  co_return (co_await send_extend(ttl, limits)).held;
}

bool LeaseState::begin_release(LeaseMachine::ReleasedBy by) {
  std::stop_source renewal(std::nostopstate);
  {
    const std::lock_guard lock(mutex_);
    if (!machine_.release_begins(BootClock::now(), by)) return false;
    renewal = renewal_stop_;
  }
  // Without the mutex, because request_stop() runs stop callbacks.
  renewal.request_stop();
  return true;
}

asio::awaitable<bool> LeaseState::send_release(const CallLimits& limits) {
  const auto sent_at = BootClock::now();
  try {
    const auto reply =
        co_await client_->checked(client_->backend().release(id_, limits), key_.str(), id_.view(), EventType::release);
    const std::lock_guard lock(mutex_);
    if (const auto* missing = std::get_if<Missing>(&reply)) {
      apply(machine_.release_refused(sent_at, *missing));
      co_return false;
    }
    apply(machine_.released());
    co_return true;
  } catch (const LockError& error) {
    const std::lock_guard lock(mutex_);
    machine_.release_failed(error.in_doubt() ? Effect::in_doubt : Effect::none);
    throw;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    machine_.release_failed(Effect::in_doubt);
    throw;
  }
}

asio::awaitable<bool> LeaseState::release(Caller caller) {
  client_->refuse_in_child();  // before the mutex is used, which a fork may have copied locked
  if (!begin_release(LeaseMachine::ReleasedBy::holder)) co_return false;
  try {
    const Client::Call call(*client_, caller);
    const CallLimits limits = call.limits();
    auto state = try_take_slot();
    if (!state) state = co_await take_slot(limits);
    const RequestSlot slot(shared_from_this());
    if (state == LeaseMachine::State::over) co_return false;
    co_return co_await send_release(limits);
  } catch (const LockError& error) {
    // A lost lease does not keep its client open. If the client is closed by then, its holder has already been notified
    // of the loss.
    if (error.code() != ErrorCode::aborted || caller.stop.stop_requested() || !lock_was_lost()) throw;
    co_return false;
  }
}

asio::awaitable<bool> LeaseState::release_with_retries(Caller caller) {
  client_->refuse_in_child();
  if (is_over()) co_return false;
  for (int failures = 1;; ++failures) {
    std::exception_ptr failure;
    try {
      if (co_await release(caller)) co_return true;
      co_return !lock_was_lost();
    } catch (const LockError& error) {
      if (!error.retryable()) throw;
      failure = std::current_exception();
      if (failures == 1) {
        warn("release-retry", "a lock could not be released; retrying until it expires", error);
      }
    }
    const auto delay = pause_before_release(failures);
    if (!delay) {
      end();
      drop_client(Client::Closing::in_background);
      std::rethrow_exception(failure);
    }
    const Client::Call call(*client_, caller);
    const auto next = std::chrono::steady_clock::now() + std::min<std::chrono::nanoseconds>(*delay, longest_pause);
    (void)co_await async::sleep_until(next, call.stop_token());
    async::expect_no_stop(call.stop_token());
  }
}

std::optional<std::chrono::nanoseconds> LeaseState::pause_before_release(int failures) const {
  const double random = client_->random(*callbacks_);
  const std::lock_guard lock(mutex_);
  const auto now = BootClock::now();
  if (!machine_.may_be_locked(now)) return std::nullopt;
  return machine_.release_delay(now, failures, random);
}

asio::awaitable<std::optional<LockError>> LeaseState::release_until(std::chrono::steady_clock::time_point until,
                                                                    std::thread::id blocking_thread) {
  using std::chrono::steady_clock;
  const bool waiting = until != steady_clock::time_point::max();
  std::optional<LockError> failure;
  for (int retry = 1;; ++retry) {
    CallLimits limits = client_->disposal_limits(blocking_thread);
    limits.deadline = std::min(limits.deadline, until);
    try {
      const auto state = co_await take_slot(limits);
      const RequestSlot slot(shared_from_this());
      if (state == LeaseMachine::State::over) co_return std::nullopt;
      co_await send_release(limits);
      failure = std::nullopt;
      std::unique_lock lock(mutex_);
      const bool found_loss = machine_.release_found_loss();
      lock.unlock();
      if (found_loss) failure = lock_lost();
      break;
    } catch (const LockError& error) {
      // The store's error is more helpful than "the client was closed".
      if (!failure || error.code() != ErrorCode::aborted) failure = error;
      if (!error.retryable()) break;
    }
    const auto delay = pause_before_release(retry);
    if (!delay) break;
    const auto now = steady_clock::now();
    if (now >= until || (waiting && client_->releases_in_background())) co_return failure;
    const auto next = std::min<steady_clock::time_point>(until, now + *delay);
    const auto result = co_await async::sleep_until(next, limits.stop);
    if (result == async::WaitResult::stopped) break;
  }
  end();
  co_return failure;
}

asio::awaitable<std::optional<LockError>> LeaseState::dispose(std::shared_ptr<LeaseState> self,
                                                              std::thread::id blocking_thread) {
  const auto until = self->client_->disposal_deadline();
  if (!until) {
    start_disposal(self);
    co_return std::nullopt;
  }
  try {
    // Created before begin_release(), so that closing waits for this release.
    const Client::Operation operation(*self->client_, Client::Operation::Purpose::cleanup);
    if (!self->begin_release(LeaseMachine::ReleasedBy::destructor)) co_return std::nullopt;
    auto failure = co_await self->release_until(*until, blocking_thread);
    if (!self->is_over()) {
      self->client_->disposal_timed_out();
      async::spawn(self->client_->executor(), retry_release(self));
    }
    co_return failure;
  } catch (const LockError&) {
    // The client was closed, and with it the lease.
    co_return std::nullopt;
  }
}

asio::awaitable<void> LeaseState::dispose_in_background(std::shared_ptr<LeaseState> self) {
  try {
    const Client::Operation operation(*self->client_, Client::Operation::Purpose::cleanup);
    if (!self->begin_release(LeaseMachine::ReleasedBy::destructor)) co_return;
    if (const auto failure = co_await self->release_until(std::chrono::steady_clock::time_point::max())) {
      self->client_->notify([self, error = *failure] { self->report(error); });
    }
  } catch (const LockError&) {  // NOLINT(bugprone-empty-catch): the client was closed, and with it the lease
  } catch (const std::bad_alloc&) {
    self->dispose_later();
  }
}

void LeaseState::start_disposal(const std::shared_ptr<LeaseState>& self) noexcept {
  try {
    async::spawn(self->client_->executor(), dispose_in_background(self));
  } catch (const std::bad_alloc&) {
    self->dispose_later();
  }
}

void LeaseState::dispose_later() noexcept {
  const std::lock_guard lock(mutex_);
  apply(machine_.release_postponed(BootClock::now()));
  reschedule();
}

// Continues a release that timed out in a destructor, which has reported the error.
asio::awaitable<void> LeaseState::retry_release(std::shared_ptr<LeaseState> self) {
  try {
    const Client::Operation operation(*self->client_, Client::Operation::Purpose::cleanup);
    co_await self->release_until(std::chrono::steady_clock::time_point::max());
  } catch (const LockError&) {  // NOLINT(bugprone-empty-catch): the client was closed
  } catch (const std::bad_alloc&) {
    self->dispose_later();
  }
}

void LeaseState::end() {
  const std::lock_guard lock(mutex_);
  apply(machine_.end());
  reschedule();
}

void LeaseState::detach() {
  begin_release(LeaseMachine::ReleasedBy::holder);
  end();
}

LeaseState::AtClose LeaseState::client_closes() noexcept {
  const std::lock_guard lock(mutex_);
  const auto actions = machine_.client_closed();
  apply(actions);
  return actions.start == LeaseMachine::Actions::Start::release ? AtClose::release : AtClose::nothing;
}

asio::awaitable<void> LeaseState::release_for_close(const CallLimits& limits) {
  try {
    co_await lost_fired(limits);
    (void)co_await take_slot(limits);
    const RequestSlot slot(shared_from_this());
    co_await client_->checked(client_->backend().release(id_, limits), key_.str(), id_.view(), EventType::release);
  } catch (const LockError& error) {
    client_->notify([self = shared_from_this(), error] { self->report(error); });
  }
}

asio::awaitable<void> LeaseState::lost_fired(const CallLimits& limits) {
  {
    const std::lock_guard lock(mutex_);
    if (!machine_.fires_lost()) co_return;
  }
  while (!loss_->token().stop_requested()) {
    if (std::chrono::steady_clock::now() >= limits.deadline) {
      throw LockError(
          ErrorCode::network_timeout,
          "the lock was not released when the client was closed, because its holder could not be notified in "
          "time; it expires after its ttl")
          .about(key_.str(), id_.view());
    }
    (void)co_await async::sleep_until(std::chrono::steady_clock::now() + lost_check);
  }
}

LockError LeaseState::lock_lost() const {
  return LockError(ErrorCode::lock_lost,
                   std::string("the lock was gone before its section ended: ") + advice_on(loss_reason()))
      .about(key_.str(), id_.view());
}

void LeaseState::report(const LockError& error) const noexcept {
  try {
    if (callbacks_->on_release_error) {
      callbacks_->on_release_error(error, {key_.str(), id_.view()});
    } else if (error.code() == ErrorCode::lock_lost) {
      client_->log().warn("lock-lost", error.what());
    } else {
      client_->log().warn("release", std::string("a lock could not be released and stays held until it expires, "
                                                 "unless a later attempt succeeds: ") +
                                         error.what());
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): by contract
  }
}

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
