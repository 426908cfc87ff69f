#include "async/event.hpp"
#include "backends/look_loop.hpp"
#include "backends/memory/store.hpp"
#include "core/expiry.hpp"
#include "os/clocks.hpp"

#include <asio/this_coro.hpp>

#include <mutex>
#include <utility>
#include <vector>

namespace syncguard {
inline namespace v0_1 {
namespace {

using State = MemoryStore::State;
using backends::LookLoop;
using backends::Waiters;

// A look takes about a microsecond.
constexpr Waiters::Pace pace{.per_look = std::chrono::microseconds(20)};
constexpr std::size_t max_looks = 64;

void refuse_if_stopped(const CallLimits& limits) { async::expect_no_stop(limits.stop); }

void call(const State::Wake& wake) {
  if (wake) wake();
}

// The store calls this, for a release by any client.
State::Wake wake_through(const std::shared_ptr<LookLoop>& looks, const LockId& waiter) {
  return [weak = std::weak_ptr(looks), waiter] {
    if (const auto loop = weak.lock()) loop->waiters().wake(waiter);
  };
}

asio::awaitable<void> look(std::shared_ptr<MemoryStore> store, std::shared_ptr<LookLoop> looks,
                           std::vector<Waiters::Look> due) {
  for (const auto& look : due) {
    looks->waiters().looked(look.id, store->state().look(look.key, look.request(), wake_through(looks, look.id)));
    // It left, perhaps just before this look brought it back.
    if (!looks->waiters().contains(look.id)) call(store->state().leave(look.key, look.id));
  }
  co_return;
}

class MemoryTicket : public WaitTicket {
 public:
  MemoryTicket(std::shared_ptr<MemoryStore> store, std::shared_ptr<LookLoop> looks, Key key, const LockId& waiter,
               State::Wake wake)
      : store_(std::move(store)), looks_(std::move(looks)), key_(std::move(key)), waiter_(waiter) {
    looks_->waiters().add(waiter_, {.key = key_, .wake = std::move(wake)});
  }
  // Other stores can only detect dead waiters; here the destructor removes the entry.
  ~MemoryTicket() override { leave(); }

  asio::awaitable<void> rejoin(const CallLimits& limits) override {
    refuse_if_stopped(limits);
    const core::WaiterRequest request{.waiter = waiter_, .place = looks_->waiters().place(waiter_)};
    const auto reply = store_->state().join(key_, request, wake_through(looks_, waiter_));
    free_in_ = reply.free_in;
    looks_->waiters().joined(waiter_, reply, core::min_reservation);
    const auto executor = co_await asio::this_coro::executor;
    looks_->start(executor, [store = store_, weak = std::weak_ptr(looks_)](std::vector<Waiters::Look> due) {
      // The loop that calls this exists.
      return look(store, weak.lock(), std::move(due));
    });
  }
  asio::awaitable<void> leave(const CallLimits& /*limits*/) override {
    leave();
    co_return;
  }
  [[nodiscard]] std::optional<std::chrono::milliseconds> free_in() const noexcept override { return free_in_; }
  [[nodiscard]] bool notices_expiry() const noexcept override { return true; }

 private:
  void leave() {
    looks_->waiters().remove(waiter_);
    call(store_->state().leave(key_, waiter_));
  }

  const std::shared_ptr<MemoryStore> store_;
  const std::shared_ptr<LookLoop> looks_;
  const Key key_;
  const LockId waiter_;
  std::optional<std::chrono::milliseconds> free_in_;
};

// No operation waits, so no deadline can pass, and a stop request matters only before the operation starts.
class MemoryBackend : public Backend {
 public:
  explicit MemoryBackend(MemoryOptions options)
      : store_(options.store ? std::move(options.store) : std::make_shared<MemoryStore>()),
        cleanup_in_is_locked_(options.cleanup_in_is_locked) {}
  ~MemoryBackend() override { looks_->close(); }

  [[nodiscard]] Capabilities capabilities() const override { return {.name = "memory", .local = true}; }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    refuse_if_stopped(limits);
    co_return state().acquire(request);
  }

  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    refuse_if_stopped(limits);
    const auto [reply, wake] = state().release(id);
    call(wake);
    co_return reply;
  }

  asio::awaitable<ExtendReply> extend(const LockId& id, std::chrono::milliseconds ttl,
                                      const CallLimits& limits) override {
    refuse_if_stopped(limits);
    co_return state().extend(id, ttl);
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    refuse_if_stopped(limits);
    const bool locked = state().is_locked(key);
    if (!locked && cleanup_in_is_locked_ && cleanup_pace_.may_clean_up(std::chrono::steady_clock::now()))
      state().remove_if_long_dead(key);
    co_return locked;
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    refuse_if_stopped(limits);
    co_return state().find_live(key);
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    refuse_if_stopped(limits);
    co_return state().find_live(id);
  }

  asio::awaitable<CleanupReply> clean_up(const CleanupRequest& request, const CallLimits& limits) override {
    refuse_if_stopped(limits);
    co_return state().clean_up(request);
  }

  asio::awaitable<LockPage> list(const ListRequest& request, const CallLimits& limits) override {
    refuse_if_stopped(limits);
    co_return state().list(request);
  }

  asio::awaitable<KeyState> inspect(const Key& key, const CallLimits& limits) override {
    refuse_if_stopped(limits);
    co_return state().inspect(key);
  }

  asio::awaitable<bool> break_lock(const Key& key, Fence fence, const CallLimits& limits) override {
    refuse_if_stopped(limits);
    const auto [broken, wake] = state().break_lock(key, fence);
    call(wake);
    co_return broken;
  }

  asio::awaitable<Fence> raise_fence(const Key& key, Fence fence, const CallLimits& limits) override {
    refuse_if_stopped(limits);
    co_return state().raise_fence(key, fence);
  }

  asio::awaitable<void> close(const CallLimits& /*limits*/) override {
    looks_->close();
    co_return;
  }

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const AcquireRequest& request, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    refuse_if_stopped(limits);
    auto ticket = std::make_unique<MemoryTicket>(store_, looks_, request.key, request.lock_id, std::move(wake));
    co_await ticket->rejoin(limits);
    co_return ticket;
  }

 private:
  [[nodiscard]] State& state() { return store_->state(); }

  const std::shared_ptr<MemoryStore> store_;
  const std::shared_ptr<LookLoop> looks_ = std::make_shared<LookLoop>(pace, max_looks);
  const bool cleanup_in_is_locked_;
  core::CleanupPace cleanup_pace_;
};

}  // namespace

Timestamp MemoryStore::system_now() { return os::system_now(); }

MemoryStore::MemoryStore(std::function<Timestamp()> clock) : state_(std::make_unique<State>(std::move(clock))) {}
MemoryStore::~MemoryStore() = default;

void MemoryStore::set_fence_counter(const Key& key, std::uint64_t value) {
  const std::lock_guard lock(state_->mutex);
  state_->fence_counters[key] = value;
}

void MemoryStore::put(const LockRecord& record) { state_->put(record); }

std::optional<LockRecord> MemoryStore::stored(const Key& key) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->locks.find(key);
  return found == state_->locks.end() ? std::nullopt : std::optional(found->second);
}

std::uint64_t MemoryStore::fence_counter(const Key& key) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->fence_counters.find(key);
  return found == state_->fence_counters.end() ? 0 : found->second;
}

std::unique_ptr<Backend> make_memory_backend(MemoryOptions options) {
  return std::make_unique<MemoryBackend>(std::move(options));
}

}  // namespace v0_1
}  // namespace syncguard
