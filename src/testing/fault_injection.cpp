#include <syncguard/testing/fault_injection.hpp>

#include "async/event.hpp"
#include "async/spawn.hpp"

#include <syncguard/forwarding_backend.hpp>

#include <asio/this_coro.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace syncguard::testing {
inline namespace v0_1 {

using async::Event;
using async::Promise;
using std::chrono::steady_clock;

struct Gate::State {
  const Event opened;
};

Gate::Gate() : state_(std::make_shared<State>()) {}
void Gate::open() { state_->opened.set(); }

Fault Fault::fail(ErrorCode code) {
  Fault fault(Kind::fail);
  fault.code_ = code;
  return fault;
}

Fault Fault::lose_reply(ErrorCode code) {
  Fault fault(Kind::lose_reply);
  fault.code_ = code;
  return fault;
}

Fault Fault::delay(std::chrono::milliseconds duration) {
  Fault fault(Kind::delay);
  fault.duration_ = duration;
  return fault;
}

Fault Fault::hold(const Gate& gate) {
  Fault fault(Kind::hold);
  fault.gate_ = gate.state();
  return fault;
}

struct FaultControl::State {
  mutable std::mutex mutex;
  mutable std::condition_variable called;
  std::map<Operation, std::deque<Fault>> next;
  std::map<Operation, Fault> always;
  std::map<Operation, std::size_t> calls;

  std::optional<Fault> begin_call(Operation operation) {
    const std::lock_guard lock(mutex);
    ++calls[operation];
    called.notify_all();
    if (auto& queue = next[operation]; !queue.empty()) {
      const Fault fault = queue.front();
      queue.pop_front();
      return fault;
    }
    const auto found = always.find(operation);
    return found == always.end() ? std::nullopt : std::optional(found->second);
  }
};

FaultControl::FaultControl() : state_(std::make_shared<State>()) {}

void FaultControl::next(Operation operation, const Fault& fault, int times) {
  const std::lock_guard lock(state_->mutex);
  for (int i = 0; i < times; ++i) state_->next[operation].push_back(fault);
}

void FaultControl::always(Operation operation, const Fault& fault) {
  const std::lock_guard lock(state_->mutex);
  state_->always.insert_or_assign(operation, fault);
}

void FaultControl::clear(Operation operation) {
  const std::lock_guard lock(state_->mutex);
  state_->next.erase(operation);
  state_->always.erase(operation);
}

std::size_t FaultControl::calls(Operation operation) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->calls.find(operation);
  return found == state_->calls.end() ? 0 : found->second;
}

bool FaultControl::wait_for_calls(Operation operation, std::size_t count, std::chrono::milliseconds limit) const {
  std::unique_lock lock(state_->mutex);
  return state_->called.wait_for(lock, limit, [&] {
    const auto found = state_->calls.find(operation);
    return (found != state_->calls.end() ? found->second : 0) >= count;
  });
}

class FaultyBackend : public ForwardingBackend {
 public:
  FaultyBackend(std::shared_ptr<Backend> inner, std::shared_ptr<FaultControl::State> control)
      : ForwardingBackend(std::move(inner)), control_(std::move(control)) {}

  void closing_begins() noexcept override {
    std::vector<std::shared_ptr<Gate::State>> gates;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      gates.swap(gates_);
    }
    for (const auto& gate : gates) gate->opened.set();
    inner().closing_begins();
  }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    co_await wait_for_answer(request.lock_id, limits);
    auto send = [inner = shared_inner(), request, mark = mark_pending(pending_acquires_, request.lock_id)](
                    const CallLimits& own) -> asio::awaitable<AcquireReply> {
      co_return co_await inner->acquire(request, own);
    };
    co_return co_await pass<AcquireReply>(Operation::acquire, send, limits);
  }

  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    co_await wait_for_answer(id, limits);
    auto send = [inner = shared_inner(), id](const CallLimits& own) -> asio::awaitable<ReleaseReply> {
      co_return co_await inner->release(id, own);
    };
    co_return co_await pass<ReleaseReply>(Operation::release, send, limits);
  }

  asio::awaitable<ExtendReply> extend(const LockId& id, std::chrono::milliseconds ttl,
                                      const CallLimits& limits) override {
    auto send = [inner = shared_inner(), id, ttl](const CallLimits& own) -> asio::awaitable<ExtendReply> {
      co_return co_await inner->extend(id, ttl, own);
    };
    co_return co_await pass<ExtendReply>(Operation::extend, send, limits);
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    auto send = [inner = shared_inner(), key](const CallLimits& own) -> asio::awaitable<bool> {
      co_return co_await inner->is_locked(key, own);
    };
    co_return co_await pass<bool>(Operation::is_locked, send, limits);
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    auto send = [inner = shared_inner(), key](const CallLimits& own) -> asio::awaitable<std::optional<LockRecord>> {
      co_return co_await inner->lookup(key, own);
    };
    co_return co_await pass<std::optional<LockRecord>>(Operation::lookup, send, limits);
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    auto send = [inner = shared_inner(), id](const CallLimits& own) -> asio::awaitable<std::optional<LockRecord>> {
      co_return co_await inner->lookup(id, own);
    };
    co_return co_await pass<std::optional<LockRecord>>(Operation::lookup, send, limits);
  }

  asio::awaitable<void> retract(const AcquireRequest& request, const CallLimits& limits) override {
    co_await wait_for_answer(request.lock_id, limits);
    auto send = [inner = shared_inner(), request](const CallLimits& own) -> asio::awaitable<bool> {
      co_await inner->retract(request, own);
      co_return true;
    };
    co_await pass<bool>(Operation::retract, send, limits);
  }

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const AcquireRequest& request, std::function<void()> wake,
                                                    const CallLimits& limits) override;

  asio::awaitable<KeyState> inspect(const Key& key, const CallLimits& limits) override {
    auto send = [inner = shared_inner(), key](const CallLimits& own) -> asio::awaitable<KeyState> {
      co_return co_await inner->inspect(key, own);
    };
    co_return co_await pass<KeyState>(Operation::inspect, send, limits);
  }

  // Transmits one request and its reply, with the fault that the test injected.
  template <typename Reply, typename Send>
  asio::awaitable<Reply> pass(Operation operation, Send send, const CallLimits& limits) {
    async::expect_no_stop(limits.stop);
    const auto fault = control_->begin_call(operation);
    if (!fault) co_return co_await send(limits);
    switch (fault->kind_) {
      case Fault::Kind::fail:
        throw LockError(fault->code_, "an injected failure");
      case Fault::Kind::lose_reply:
        co_await send(limits);
        throw LockError(fault->code_, "an injected failure, after the request took effect", Effect::in_doubt);
      case Fault::Kind::delay:
      case Fault::Kind::hold:
        break;
    }
    if (fault->gate_) {
      const std::lock_guard lock(mutex_);
      gates_.push_back(fault->gate_);
      if (closing_) fault->gate_->opened.set();
    }
    const auto executor = co_await asio::this_coro::executor;
    const Promise<Reply> reply;
    async::spawn(executor, transmit(reply, *fault, send));
    co_await reply.ready().wait(limits, "timed out waiting for a reply", Effect::in_doubt);
    co_return std::move(reply.value());
  }

 private:
  // Lock ids with a pending acquire, and the event of its reply.
  struct PendingAcquires {
    std::mutex mutex;
    std::map<LockId, Event> acquires;
  };

  // Marks an acquire as pending while a copy of the returned object exists. The request holds one copy.
  static std::shared_ptr<void> mark_pending(const std::shared_ptr<PendingAcquires>& all, const LockId& id) {
    {
      const std::lock_guard lock(all->mutex);
      all->acquires.try_emplace(id);
    }
    return {nullptr, [all, id](void*) {
              const std::lock_guard lock(all->mutex);
              all->acquires.extract(id).mapped().set();
            }};
  }

  template <typename Reply, typename Send>
  static asio::awaitable<void> transmit(Promise<Reply> reply, Fault fault, Send send) {
    if (fault.gate_) {
      (void)co_await fault.gate_->opened.wait(steady_clock::time_point::max());
    } else {
      (void)co_await async::sleep_until(steady_clock::now() + fault.duration_);
    }
    const CallLimits unlimited{{}, steady_clock::time_point::max()};
    try {
      reply.set_value(co_await send(unlimited));
    } catch (...) {
      reply.set_error(std::current_exception());
    }
  }

  asio::awaitable<void> wait_for_answer(const LockId& id, const CallLimits& limits) {
    for (;;) {
      std::optional<Event> answered;
      {
        const std::lock_guard lock(pending_acquires_->mutex);
        const auto found = pending_acquires_->acquires.find(id);
        if (found == pending_acquires_->acquires.end()) co_return;
        answered = found->second;
      }
      co_await answered->wait(limits, "timed out waiting for a reply", Effect::in_doubt);
    }
  }

  const std::shared_ptr<FaultControl::State> control_;
  const std::shared_ptr<PendingAcquires> pending_acquires_ = std::make_shared<PendingAcquires>();
  std::mutex mutex_;
  bool closing_ = false;
  std::vector<std::shared_ptr<Gate::State>> gates_;
};

namespace {

class FaultyTicket : public WaitTicket {
 public:
  FaultyTicket(FaultyBackend& backend, std::shared_ptr<WaitTicket> inner)
      : backend_(backend), inner_(std::move(inner)) {}

  asio::awaitable<void> rejoin(const CallLimits& limits) override {
    auto send = [inner = inner_](const CallLimits& own) -> asio::awaitable<bool> {
      co_await inner->rejoin(own);
      co_return true;
    };
    co_await backend_.pass<bool>(Operation::join, send, limits);
  }

  asio::awaitable<void> leave(const CallLimits& limits) override {
    auto send = [inner = inner_](const CallLimits& own) -> asio::awaitable<bool> {
      co_await inner->leave(own);
      co_return true;
    };
    co_await backend_.pass<bool>(Operation::leave, send, limits);
  }

  [[nodiscard]] std::optional<std::chrono::milliseconds> free_in() const noexcept override { return inner_->free_in(); }
  [[nodiscard]] bool notices_expiry() const noexcept override { return inner_->notices_expiry(); }

 private:
  FaultyBackend& backend_;
  const std::shared_ptr<WaitTicket> inner_;
};

}  // namespace

asio::awaitable<std::unique_ptr<WaitTicket>> FaultyBackend::join(const AcquireRequest& request,
                                                                 std::function<void()> wake, const CallLimits& limits) {
  auto send = [inner = shared_inner(), request,
               wake](const CallLimits& own) -> asio::awaitable<std::shared_ptr<WaitTicket>> {
    co_return co_await inner->join(request, wake, own);
  };
  auto ticket = co_await pass<std::shared_ptr<WaitTicket>>(Operation::join, send, limits);
  if (!ticket) co_return nullptr;
  co_return std::make_unique<FaultyTicket>(*this, std::move(ticket));
}

std::unique_ptr<Backend> with_faults(std::unique_ptr<Backend> backend, const FaultControl& control) {
  return std::make_unique<FaultyBackend>(std::move(backend), control.state());
}

}  // namespace v0_1
}  // namespace syncguard::testing
