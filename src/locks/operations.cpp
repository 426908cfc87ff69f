// The operations that blocking and asynchronous calls share.

#include "core/durations.hpp"
#include "core/fence_limit.hpp"
#include "core/validation.hpp"
#include "locks/acquire_loop.hpp"
#include "locks/client.hpp"
#include "locks/lease_state.hpp"

#include <syncguard/async.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

namespace syncguard {
inline namespace v0_1 {
namespace detail {
namespace {

using std::chrono::steady_clock;

// The reply to one attempt, and the time before the request was sent.
struct Attempt {
  AcquireReply reply;
  BootClock::time_point sent_at;
};

void warn_if_near_limit(const Client& client, Fence fence) {
  if (fence.value() <= Fence::warn_above) return;
  client.log().warn("fence-threshold",
                    "a fence counter has passed 090000000000000; from 900000000000000 on its key can no longer be "
                    "locked");
}

// If a lock has expired before the reply about it arrived, the reply counts as lost.
void expect_unexpired(const Granted& granted, std::chrono::milliseconds ttl, BootClock::time_point sent_at,
                      const Key& key, const LockId& id) {
  if (sent_at + LeaseMachine::bounded(granted.remaining, ttl) > BootClock::now()) return;
  throw LockError(ErrorCode::network_timeout, "the lock's ttl had passed when the reply arrived", Effect::in_doubt)
      .about(key.str(), id.view());
}

asio::awaitable<Attempt> attempt(Client& client, const AcquireRequest& request, const CallLimits& limits) {
  const auto sent_at = BootClock::now();
  const auto reply = co_await client.checked(client.backend().acquire(request, limits), request.key.str(),
                                             request.lock_id.view(), EventType::acquire);
  if (const auto* granted = std::get_if<Granted>(&reply)) {
    warn_if_near_limit(client, granted->fence);
    if (core::is_implausible(granted->expires_at) &&
        core::is_implausible(granted->expires_at - LeaseMachine::bounded(granted->remaining, request.ttl)) &&
        client.backend().capabilities().fences == FenceSource::clock) {
      client.log().warn("fence-clock",
                        "the clock of the lock store shows a time after the year 2255 and is ignored: fences are "
                        "counted, and can repeat after a failover. Set the clock");
    }
    expect_unexpired(*granted, request.ttl, sent_at, request.key, request.lock_id);
  }
  co_return Attempt{reply, sent_at};
}

template <typename Options>
void validate_lease(const Options& options) {
  core::validate_ttl(options.ttl);
  if (options.max_hold <= std::chrono::milliseconds::zero()) {
    throw LockError(ErrorCode::invalid_argument, "max_hold must be positive");
  }
}

// Operation: with callbacks, and the options of a lease.
template <typename Operation>
Lease make_lease(const ClientPtr& client, const Operation& operation, const Key& key, const LockId& id,
                 const Granted& granted, BootClock::time_point sent_at) {
  const auto& options = operation.options;
  const LeaseState::Grant grant{
      .reply = granted,
      .sent_at = sent_at,
      .ttl = options.ttl,
      .renewal = options.auto_extend ? LeaseMachine::Renewal::automatic : LeaseMachine::Renewal::none,
      .max_hold = options.max_hold};
  auto state = std::make_shared<LeaseState>(client, operation.callbacks, key, id, grant);
  if (!state->start()) throw LockError(ErrorCode::aborted, "the client was closed").about(key.str(), id.view());
  return LeaseAccess::make(std::move(state));
}

// Makes sure that a call that fails leaves no lock behind: retracts its acquire when it goes out of scope, if a request
// may have taken effect. A destructor, because the call may also run out of memory.
class Retraction {
 public:
  Retraction(Client& client, const AcquireRequest& request) noexcept : client_(client), request_(request) {}
  Retraction(const Retraction&) = delete;
  Retraction& operator=(const Retraction&) = delete;
  ~Retraction() {
    if (is_needed_) client_.retract_in_background(request_);
  }

  void set_needed(bool needed) noexcept { is_needed_ = needed; }

 private:
  Client& client_;
  const AcquireRequest& request_;
  bool is_needed_ = false;
};

// A call of acquire that has to wait; counted while it exists.
class Waiting {
 public:
  explicit Waiting(Client& client) : counters_(client.counters()) {
    if (counters_ != nullptr) counters_->wait_begins();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    if (counters_ != nullptr) counters_->wait_ends();
  }

 private:
  BackendCounters* const counters_;
};

// A caller's place in the queue of the store, given up in the background unless the lock was acquired.
class QueuePlace {
 public:
  QueuePlace(Client& client, std::function<void()> wake) : client_(client), wake_(std::move(wake)) {}
  QueuePlace(const QueuePlace&) = delete;
  QueuePlace& operator=(const QueuePlace&) = delete;
  ~QueuePlace() {
    if (ticket_) client_.leave_in_background(std::move(ticket_));
  }

  // False if the backend has no queue.
  asio::awaitable<bool> join(const AcquireRequest& request, const CallLimits& limits) {
    if (ticket_) {
      co_await client_.checked(ticket_->rejoin(limits), request.key.str(), request.lock_id.view());
    } else {
      ticket_ = co_await client_.checked(client_.backend().join(request, wake_, limits), request.key.str(),
                                         request.lock_id.view());
    }
    co_return ticket_ != nullptr;
  }

  // What joining saw. Only after join() returned true.
  [[nodiscard]] AcquireLoop::Joined found() const noexcept {
    return {.free_in = ticket_->free_in(), .notices_expiry = ticket_->notices_expiry()};
  }

  // The acquire has already removed the entry from the store.
  void forget() noexcept { ticket_.reset(); }

 private:
  Client& client_;
  const std::function<void()> wake_;
  std::unique_ptr<WaitTicket> ticket_;
};

}  // namespace

asio::awaitable<TryResult> perform(ClientPtr client, TryAcquire operation, Caller caller) {
  validate_lease(operation.options);
  const Client::Call call(*client, caller);
  const AcquireRequest request{.key = std::move(operation.key),
                               .lock_id = LockId::generate(),
                               .ttl = operation.options.ttl,
                               .holder = client->holder(),
                               .hints = {.id_is_new = true}};
  const CallLimits limits = call.limits();
  Retraction retraction(*client, request);
  retraction.set_needed(true);
  std::optional<Attempt> answer;
  try {
    answer = co_await attempt(*client, request, limits);
  } catch (const LockError& error) {
    retraction.set_needed(error.in_doubt());
    throw;
  }
  TryResult lease;
  if (const auto* granted = std::get_if<Granted>(&answer->reply)) {
    lease = make_lease(client, operation, request.key, request.lock_id, *granted, answer->sent_at);
  }
  retraction.set_needed(false);
  co_return lease;
}

asio::awaitable<Lease> perform(ClientPtr client, Acquire operation, Caller caller) {
  const AcquireOptions& options = operation.options;
  validate_lease(options);
  core::validate(options.wait);
  const Client::Call call(*client, caller);
  AcquireRequest request{
      .key = std::move(operation.key), .lock_id = LockId::generate(), .ttl = options.ttl, .holder = client->holder()};
  bool id_is_new = true;

  const auto place = client->wait_queue().enter(request.key);
  // Set when an attempt may succeed. Created when the first wait begins: most acquisitions do not wait.
  std::optional<async::Event> wake_up = place.became_first();
  std::optional<QueuePlace> queue_place;
  const auto start = steady_clock::now();
  std::optional<Waiting> waiting;
  const auto wait_begins = [&] {
    if (!waiting) waiting.emplace(*client);
  };
  const auto wait_ended = [&](const Outcome& outcome) {
    if (!waiting) return;
    client->observe(
        {EventType::waited, outcome, steady_clock::now() - start, request.key.str(), request.lock_id.view()});
    waiting.reset();
  };
  AcquireLoop loop(options.wait, start,
                   wake_up ? AcquireLoop::Start::behind_others : AcquireLoop::Start::first_in_queue,
                   [&] { return client->random(*operation.callbacks); });
  // The last variable: its request is sent before the next caller becomes the first in the queue.
  Retraction retraction(*client, request);

  for (;;) {
    if (loop.step() != AcquireLoop::Step::fail && call.stop_token().stop_requested()) loop.stopped();
    switch (loop.step()) {
      case AcquireLoop::Step::wait_in_queue: {
        wait_begins();
        const auto result = co_await wake_up->wait(loop.wait_until(), call.stop_token());
        if (result == async::WaitResult::stopped) {
          loop.stopped();
        } else if (place.is_first()) {
          // From now on, only the store sets it.
          wake_up->reset();
          loop.first_in_queue();
        } else if (result == async::WaitResult::timed_out) {
          loop.timer(steady_clock::now());
        }
        break;
      }
      case AcquireLoop::Step::attempt: {
        const auto now = steady_clock::now();
        const CallLimits limits = call.limits(now);
        // This attempt covers every earlier wake-up.
        if (wake_up) wake_up->reset();
        // An attempt in doubt must be repeated, not delayed.
        request.hints = {.can_wait = loop.can_wait(now) && !loop.in_doubt(),
                         .id_is_new = std::exchange(id_is_new, false)};
        std::optional<Attempt> answer;
        retraction.set_needed(true);
        try {
          answer = co_await attempt(*client, request, limits);
        } catch (const LockError& error) {
          loop.failed(steady_clock::now(), error);
          retraction.set_needed(loop.in_doubt());
          break;
        }
        if (const auto* granted = std::get_if<Granted>(&answer->reply)) {
          if (queue_place) queue_place->forget();
          auto lease = make_lease(client, operation, request.key, request.lock_id, *granted, answer->sent_at);
          retraction.set_needed(false);
          wait_ended({});
          co_return lease;
        }
        wait_begins();
        loop.contended(steady_clock::now(), std::get<Contended>(answer->reply));
        retraction.set_needed(loop.in_doubt());
        break;
      }
      case AcquireLoop::Step::join: {
        if (!wake_up) wake_up.emplace();
        if (!queue_place) queue_place.emplace(*client, [event = *wake_up] { event.set(); });
        CallLimits limits = call.limits();
        id_is_new = false;
        request.hints = {};
        // Joining must not use up the time of the last attempt.
        limits.deadline = std::min(limits.deadline, loop.deadline());
        try {
          if (co_await queue_place->join(request, limits)) {
            loop.joined(steady_clock::now(), queue_place->found());
          } else {
            loop.not_joined(steady_clock::now(), AcquireLoop::JoinFailure::permanent);
          }
        } catch (const LockError& error) {
          client->log().debug(std::string("polling, because joining the queue failed: ") + error.what());
          loop.not_joined(steady_clock::now(), error.retryable() || error.code() == ErrorCode::aborted
                                                   ? AcquireLoop::JoinFailure::this_time
                                                   : AcquireLoop::JoinFailure::permanent);
        }
        break;
      }
      case AcquireLoop::Step::sleep: {
        wait_begins();
        if (!wake_up) wake_up.emplace();
        switch (co_await wake_up->wait(loop.wait_until(), call.stop_token())) {
          case async::WaitResult::set:
            loop.woken();
            break;
          case async::WaitResult::timed_out:
            loop.timer(steady_clock::now());
            break;
          case async::WaitResult::stopped:
            loop.stopped();
            break;
        }
        break;
      }
      case AcquireLoop::Step::fail:
        wait_ended(Outcome::failed(loop.error().code()));
        throw loop.error().about(request.key.str(), request.lock_id.view());
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// By key or id

asio::awaitable<TryResult> perform(ClientPtr client, Adopt operation, Caller caller) {
  validate_lease(operation.options);
  const auto& id = operation.id;
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  const auto record = co_await client->checked(client->backend().lookup(id, limits), {}, id.view(), EventType::lookup);
  if (!record) co_return std::nullopt;
  const CallLimits extend_limits = call.limits();
  const auto sent_at = BootClock::now();
  const auto reply = co_await client->checked(client->backend().extend(id, operation.options.ttl, extend_limits),
                                              record->key.str(), id.view(), EventType::extend);
  const auto* extended = std::get_if<Extended>(&reply);
  if (extended == nullptr) co_return std::nullopt;
  const Granted granted{.fence = record->fence, .expires_at = extended->expires_at, .remaining = extended->remaining};
  expect_unexpired(granted, operation.options.ttl, sent_at, record->key, id);
  co_return make_lease(client, operation, record->key, id, granted, sent_at);
}

asio::awaitable<bool> perform(ClientPtr client, Release operation, Caller caller) {
  const auto& id = operation.id;
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  const auto reply = co_await client->checked(client->backend().release(id, limits), {}, id.view(), EventType::release);
  co_return std::holds_alternative<Released>(reply);
}

asio::awaitable<std::optional<Timestamp>> perform(ClientPtr client, Extend operation, Caller caller) {
  const auto& [id, ttl] = operation;
  core::validate_ttl(ttl);
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  const auto reply =
      co_await client->checked(client->backend().extend(id, ttl, limits), {}, id.view(), EventType::extend);
  if (const auto* extended = std::get_if<Extended>(&reply)) co_return extended->expires_at;
  co_return std::nullopt;
}

asio::awaitable<bool> perform(ClientPtr client, IsLocked operation, Caller caller) {
  const auto& key = operation.key;
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().is_locked(key, limits), key.str(), {}, EventType::is_locked);
}

asio::awaitable<std::optional<LockRecord>> perform(ClientPtr client, LookupRaw<Key> operation, Caller caller) {
  const auto& key = operation.by;
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().lookup(key, limits), key.str(), {}, EventType::lookup);
}

asio::awaitable<std::optional<LockRecord>> perform(ClientPtr client, LookupRaw<LockId> operation, Caller caller) {
  const auto& id = operation.by;
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().lookup(id, limits), {}, id.view(), EventType::lookup);
}

namespace {

template <typename By>
asio::awaitable<std::optional<LockInfo>> lookup_sanitized(ClientPtr client, By by, Caller caller) {
  LookupRaw<By> raw{std::move(by)};  // named because of ADR 7
  const auto record = co_await perform(std::move(client), std::move(raw), std::move(caller));
  co_return record ? std::optional(sanitize(*record)) : std::nullopt;
}

}  // namespace

asio::awaitable<std::optional<LockInfo>> perform(ClientPtr client, Lookup<Key> operation, Caller caller) {
  return lookup_sanitized(std::move(client), std::move(operation.by), std::move(caller));
}

asio::awaitable<std::optional<LockInfo>> perform(ClientPtr client, Lookup<LockId> operation, Caller caller) {
  return lookup_sanitized(std::move(client), operation.by, std::move(caller));
}

asio::awaitable<bool> perform(ClientPtr client, Owns operation, Caller caller) {
  const auto record = co_await perform(std::move(client), LookupRaw<LockId>{operation.id}, std::move(caller));
  co_return record.has_value();
}

// ---------------------------------------------------------------------------------------------------------------------
// Administration

asio::awaitable<std::vector<Finding>> perform(ClientPtr client, Diagnose /*operation*/, Caller caller) {
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().diagnose(limits), {}, {});
}

asio::awaitable<LockPage> perform(ClientPtr client, List operation, Caller caller) {
  if (operation.limit == 0 || operation.limit > ListOptions::max_limit) {
    throw LockError(ErrorCode::invalid_argument, "limit must be from 1 to 1000");
  }
  auto normal_form = core::to_nfc(operation.prefix);
  if (!normal_form) throw LockError(ErrorCode::invalid_argument, "prefix must be valid UTF-8");
  const ListRequest request{
      .prefix = std::move(*normal_form), .limit = operation.limit, .cursor = std::move(operation.cursor)};
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().list(request, limits), {}, {});
}

asio::awaitable<KeyState> perform(ClientPtr client, Inspect operation, Caller caller) {
  const auto& key = operation.key;
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().inspect(key, limits), key.str(), {});
}

namespace {

// Holders are sorted by their fences.
bool is_change(const std::optional<KeyState>& last, const KeyState& state) {
  const auto same = [](const Holder& a, const Holder& b) { return a.fence == b.fence && a.label == b.label; };
  return !last || !std::ranges::equal(last->holders, state.holders, same);
}

}  // namespace

asio::awaitable<KeyState> perform(ClientPtr client, NextChange operation, Caller caller) {
  const auto& [key, options, last] = operation;
  if (options.interval <= std::chrono::milliseconds::zero()) {
    throw LockError(ErrorCode::invalid_argument, "interval must be positive");
  }
  const Client::Call call(*client, caller);
  bool first = !last.has_value();
  for (;;) {
    if (!first) {
      (void)co_await async::sleep_until(steady_clock::now() + core::bounded(options.interval), call.stop_token());
      async::expect_no_stop(call.stop_token());
    }
    first = false;
    const CallLimits limits = call.limits();
    try {
      auto state = co_await client->checked(client->backend().inspect(key, limits), key.str(), {});
      if (is_change(last, state)) co_return state;
    } catch (const LockError& error) {
      if (!error.retryable()) throw;
      client->log().debug(std::string("watching a key: the state is unknown, retrying: ") + error.what());
    }
  }
}

asio::awaitable<bool> perform(ClientPtr client, BreakLock operation, Caller caller) {
  const auto& [key, fence] = operation;
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  const bool broken = co_await client->checked(client->backend().break_lock(key, fence, limits), key.str(), {});
  if (broken) client->log().warn("break-lock", "a lock was broken: its holder was not asked, and may still be working");
  co_return broken;
}

asio::awaitable<Fence> perform(ClientPtr client, RaiseFence operation, Caller caller) {
  const auto& [key, fence] = operation;
  if (fence.value() >= Fence::refuse_above) {
    throw LockError(ErrorCode::invalid_argument,
                    "a fence counter can be raised to at most 899999999999999: beyond that, its key cannot be locked");
  }
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  const auto raised = co_await client->checked(client->backend().raise_fence(key, fence, limits), key.str(), {});
  warn_if_near_limit(*client, raised);
  co_return raised;
}

asio::awaitable<CleanupReply> perform(ClientPtr client, CleanUp operation, Caller caller) {
  auto& request = operation.request;
  if (request.older_than < std::chrono::milliseconds::zero() || request.limit == 0) {
    throw LockError(ErrorCode::invalid_argument, "cleanup needs a non-negative age and a positive limit");
  }
  request.older_than = core::bounded(request.older_than);
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().clean_up(request, limits), {}, {});
}

asio::awaitable<std::string> perform(ClientPtr client, Setup /*operation*/, Caller caller) {
  const Client::Call call(*client, caller);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().setup(limits), {}, {});
}

asio::awaitable<bool> perform(ClientPtr client, Close /*operation*/, Caller /*caller*/) {
  co_return co_await client->close();
}

// ---------------------------------------------------------------------------------------------------------------------
// On a lease

asio::awaitable<bool> perform(ClientPtr /*client*/, ExtendLease operation, Caller caller) {
  if (!operation.lease) co_return false;
  co_return co_await operation.lease->extend(operation.ttl, std::move(caller));
}

namespace {

// A blocking caller does this itself, because it waits until the client is closed.
void after_release(LeaseState& lease, const Caller& caller) {
  if (caller.blocking_thread == std::thread::id()) lease.drop_client_if_over(Client::Closing::in_background);
}

}  // namespace

asio::awaitable<bool> perform(ClientPtr /*client*/, ReleaseLease operation, Caller caller) {
  if (!operation.lease) co_return false;
  const bool released = co_await operation.lease->release(caller);
  after_release(*operation.lease, caller);
  co_return released;
}

asio::awaitable<bool> perform(ClientPtr /*client*/, ReleaseLeaseWithRetries operation, Caller caller) {
  if (!operation.lease) co_return false;
  const bool released = co_await operation.lease->release_with_retries(caller);
  after_release(*operation.lease, caller);
  co_return released;
}

asio::awaitable<bool> end_section(std::shared_ptr<LeaseState> lease, IfLost if_lost) {
  std::optional<LockError> error;
  try {
    error = co_await LeaseState::dispose(lease);
    if (error) lease->client()->notify([lease, error = *error] { lease->report(error); });
  } catch (const std::bad_alloc&) {
    lease->dispose_later();
    lease->drop_client(Client::Closing::in_background);
    throw;
  }
  lease->drop_client(Client::Closing::in_background);
  if (!lease->lock_was_lost()) co_return !error;
  if (!error || error->code() != ErrorCode::lock_lost) {
    lease->client()->notify([lease, loss = lease->lock_lost()] { lease->report(loss); });
  }
  if (if_lost == IfLost::fail) throw lease->lock_lost();
  co_return false;
}

void expect_no_stop(const std::stop_token& stop) { async::expect_no_stop(stop); }

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
