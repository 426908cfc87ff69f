// The operations that blocking and asynchronous calls share. Each keeps the client alive by its first parameter.

#include "core/validation.hpp"
#include "locks/acquire_loop.hpp"
#include "locks/client.hpp"
#include "locks/lease_state.hpp"

#include <syncguard/async.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace syncguard::detail {
namespace {

using async::BootClock;
using std::chrono::steady_clock;

// The answer to one attempt, with the moment before it was sent.
struct Attempt {
  AcquireReply reply;
  BootClock::time_point sent_at;
};

asio::awaitable<Attempt> attempt(Client& client, const AcquireRequest& request, const CallLimits& limits) {
  const auto sent_at = BootClock::now();
  const auto reply =
      co_await client.checked(client.backend().acquire(request, limits), request.key.str(), request.lock_id.view());
  if (const auto* granted = std::get_if<Granted>(&reply)) {
    if (granted->fence.value() > Fence::warn_above) {
      client.log().warn("fence-threshold",
                        "a fence counter has passed 090000000000000; from 900000000000000 on its key cannot be "
                        "locked any more");
    }
    // An answer that took longer than the lock lives is of no use: treat it like one that never came.
    if (sent_at + granted->remaining <= BootClock::now()) {
      throw LockError(ErrorCode::network_timeout, "the lock was granted, but its ttl was over when the answer came",
                      Effect::in_doubt)
          .about(request.key.str(), request.lock_id.view());
    }
  }
  co_return Attempt{reply, sent_at};
}

Lease make_lease(const ClientPtr& client, const CallbacksPtr& callbacks, const AcquireRequest& request,
                 const Granted& granted, BootClock::time_point sent_at, bool auto_extend) {
  const LeaseState::Grant grant{
      .reply = granted,
      .sent_at = sent_at,
      .ttl = request.ttl,
      .renewal = auto_extend ? LeaseMachine::Renewal::automatic : LeaseMachine::Renewal::none};
  auto state = std::make_shared<LeaseState>(client, callbacks, request.key, request.lock_id, grant);
  state->start();
  return LeaseAccess::make(std::move(state));
}

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
      ticket_ = co_await client_.checked(client_.backend().join(request.key, request.lock_id, wake_, limits),
                                         request.key.str(), request.lock_id.view());
    }
    co_return ticket_ != nullptr;
  }

  // The acquire removed it from the store already.
  void forget() noexcept { ticket_.reset(); }

 private:
  Client& client_;
  const std::function<void()> wake_;
  std::unique_ptr<WaitTicket> ticket_;
};

}  // namespace

asio::awaitable<std::optional<Lease>> try_acquire(ClientPtr client, CallbacksPtr callbacks, Key key, TryOptions options,
                                                  std::stop_token stop) {
  core::validate_ttl(options.ttl);
  const Client::Call call(*client, stop);
  const AcquireRequest request{std::move(key), LockId::generate(), options.ttl};
  const CallLimits limits = call.limits();
  try {
    const Attempt answer = co_await attempt(*client, request, limits);
    if (const auto* granted = std::get_if<Granted>(&answer.reply)) {
      co_return make_lease(client, callbacks, request, *granted, answer.sent_at, options.auto_extend);
    }
    co_return std::nullopt;
  } catch (const LockError& error) {
    if (error.in_doubt()) client->retract_in_background(request);
    throw;
  }
}

asio::awaitable<Lease> acquire(ClientPtr client, CallbacksPtr callbacks, Key key, AcquireOptions options,
                               std::stop_token stop, std::stop_token wait_stop) {
  core::validate_ttl(options.ttl);
  core::validate(options.wait);
  const Client::Call call(*client, stop, wait_stop);
  AcquireRequest request{std::move(key), LockId::generate(), options.ttl};

  // Made when the first wait begins: most acquisitions do not wait.
  std::shared_ptr<async::WakeUp> wake_up;
  const auto make_wake_up = [&] { return wake_up = std::make_shared<async::WakeUp>(); };
  const auto place = client->waiting_line().enter(request.key, make_wake_up);
  std::optional<QueuePlace> queue_place;
  AcquireLoop loop(options.wait, steady_clock::now(),
                   wake_up ? AcquireLoop::Start::behind_others : AcquireLoop::Start::first_in_line,
                   [&] { return client->random(*callbacks); });

  for (;;) {
    if (loop.step() != AcquireLoop::Step::fail && call.stop_token().stop_requested()) loop.stopped();
    switch (loop.step()) {
      case AcquireLoop::Step::wait_in_line: {
        const auto reason = co_await wake_up->wait(loop.wait_until(), call.stop_token());
        if (reason == async::WakeUp::Reason::stopped) {
          loop.stopped();
        } else if (place.is_first()) {
          loop.first_in_line();
        } else if (reason == async::WakeUp::Reason::timed_out) {
          loop.timer(steady_clock::now());
        }
        break;
      }
      case AcquireLoop::Step::attempt: {
        const CallLimits limits = call.limits();
        // What is in doubt has to be asked for, not put off.
        request.can_wait = loop.can_wait(steady_clock::now()) && !loop.in_doubt();
        std::optional<Attempt> answer;
        try {
          answer = co_await attempt(*client, request, limits);
        } catch (const LockError& error) {
          loop.failed(steady_clock::now(), error);
          break;
        }
        if (const auto* granted = std::get_if<Granted>(&answer->reply)) {
          if (queue_place) queue_place->forget();
          co_return make_lease(client, callbacks, request, *granted, answer->sent_at, options.auto_extend);
        }
        loop.contended(steady_clock::now(), std::get<Contended>(answer->reply).free_in);
        break;
      }
      case AcquireLoop::Step::join: {
        if (!wake_up) make_wake_up();
        if (!queue_place) queue_place.emplace(*client, [wake_up] { wake_up->wake(); });
        CallLimits limits = call.limits();
        // Joining must not use up time that belongs to the last attempt.
        limits.deadline = std::min(limits.deadline, loop.deadline());
        try {
          if (co_await queue_place->join(request, limits)) {
            loop.joined();
          } else {
            loop.not_joined(steady_clock::now(), AcquireLoop::JoinFailure::for_good);
          }
        } catch (const LockError& error) {
          client->log().debug(std::string("waiting without a place in the queue: ") + error.what());
          loop.not_joined(steady_clock::now(), error.retryable() || error.code() == ErrorCode::aborted
                                                   ? AcquireLoop::JoinFailure::this_time
                                                   : AcquireLoop::JoinFailure::for_good);
        }
        break;
      }
      case AcquireLoop::Step::sleep: {
        if (!wake_up) make_wake_up();
        switch (co_await wake_up->wait(loop.wait_until(), call.stop_token())) {
          case async::WakeUp::Reason::woken:
            loop.woken();
            break;
          case async::WakeUp::Reason::timed_out:
            loop.timer(steady_clock::now());
            break;
          case async::WakeUp::Reason::stopped:
            loop.stopped();
            break;
        }
        break;
      }
      case AcquireLoop::Step::fail:
        if (loop.in_doubt()) client->retract_in_background(request);
        throw loop.error().about(request.key.str(), request.lock_id.view());
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// By key or id

asio::awaitable<bool> release(ClientPtr client, LockId id, std::stop_token stop) {
  const Client::Call call(*client, stop);
  const CallLimits limits = call.limits();
  const auto reply = co_await client->checked(client->backend().release(id, limits), {}, id.view());
  co_return std::holds_alternative<Released>(reply);
}

asio::awaitable<std::optional<Timestamp>> extend(ClientPtr client, LockId id, std::chrono::milliseconds ttl,
                                                 std::stop_token stop) {
  core::validate_ttl(ttl);
  const Client::Call call(*client, stop);
  const CallLimits limits = call.limits();
  const auto reply = co_await client->checked(client->backend().extend(id, ttl, limits), {}, id.view());
  if (const auto* extended = std::get_if<Extended>(&reply)) co_return extended->expires_at;
  co_return std::nullopt;
}

asio::awaitable<bool> is_locked(ClientPtr client, Key key, std::stop_token stop) {
  const Client::Call call(*client, stop);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().is_locked(key, limits), key.str(), {});
}

asio::awaitable<std::optional<LockRecord>> lookup_raw(ClientPtr client, Key key, std::stop_token stop) {
  const Client::Call call(*client, stop);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().lookup(key, limits), key.str(), {});
}

asio::awaitable<std::optional<LockRecord>> lookup_raw(ClientPtr client, LockId id, std::stop_token stop) {
  const Client::Call call(*client, stop);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().lookup(id, limits), {}, id.view());
}

asio::awaitable<std::optional<LockInfo>> lookup(ClientPtr client, Key key, std::stop_token stop) {
  const auto record = co_await lookup_raw(std::move(client), std::move(key), std::move(stop));
  co_return record ? std::optional(sanitise(*record)) : std::nullopt;
}

asio::awaitable<std::optional<LockInfo>> lookup(ClientPtr client, LockId id, std::stop_token stop) {
  const auto record = co_await lookup_raw(std::move(client), id, std::move(stop));
  co_return record ? std::optional(sanitise(*record)) : std::nullopt;
}

asio::awaitable<bool> owns(ClientPtr client, LockId id, std::stop_token stop) {
  const auto record = co_await lookup_raw(std::move(client), id, std::move(stop));
  co_return record.has_value();
}

// ---------------------------------------------------------------------------------------------------------------------
// On the store

asio::awaitable<std::vector<Finding>> diagnose(ClientPtr client, std::stop_token stop) {
  const Client::Call call(*client, stop);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().diagnose(limits), {}, {});
}

asio::awaitable<std::string> setup(ClientPtr client, std::stop_token stop) {
  const Client::Call call(*client, stop);
  const CallLimits limits = call.limits();
  co_return co_await client->checked(client->backend().setup(limits), {}, {});
}

// ---------------------------------------------------------------------------------------------------------------------
// On a lease

asio::awaitable<bool> extend_lease(std::shared_ptr<LeaseState> lease, std::chrono::milliseconds ttl,
                                   std::stop_token stop) {
  co_return co_await lease->extend(ttl, std::move(stop));
}

asio::awaitable<bool> release_lease(std::shared_ptr<LeaseState> lease, std::stop_token stop) {
  co_return co_await lease->release(std::move(stop));
}

asio::awaitable<bool> dispose_lease(std::shared_ptr<LeaseState> lease) {
  const auto error = co_await lease->dispose();
  if (error) lease->client()->notify([lease, error = *error] { lease->report(error); });
  co_return !error;
}

asio::awaitable<bool> close(ClientPtr client) { co_return co_await client->close(); }

}  // namespace syncguard::detail
