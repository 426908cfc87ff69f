#include "locks/lease_scheduler.hpp"

#include "locks/lease_state.hpp"
#include "os/boot_timer.hpp"
#include "os/threads.hpp"

#include <asio/execution/context.hpp>
#include <asio/execution/outstanding_work.hpp>
#include <asio/execution_context.hpp>
#include <asio/prefer.hpp>
#include <asio/query.hpp>

#include <condition_variable>
#include <mutex>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

namespace {

// When a lease is due whose lock the store has lost, until the lease is told. The machine asks for no such time.
constexpr auto store_lost_lock = LeaseScheduler::Time::min();

}  // namespace

// Shared with the thread, which outlives the scheduler if the last reference to the client is dropped there.
struct LeaseScheduler::State {
  explicit State(std::optional<asio::any_io_executor> executor) : kept_busy(std::move(executor)) {}

  // All functions except run() and close() require the mutex.

  // Removing a lease does not change the timer. A spurious wake-up is cheaper than setting the timer each time.
  void arm_by(Time due) noexcept {
    if (due >= armed) return;
    armed = due;
    timer.arm(due);
  }

  // Calls each lease that is due.
  void run_due_leases(std::unique_lock<std::mutex>& lock) {
    const auto now = BootClock::now();
    while (!leases.empty() && leases.earliest() <= now) {
      auto lease = leases.earliest_item();
      const bool gone = leases.earliest() == store_lost_lock;
      // Moved to the end, not removed: the lease sets its next due time.
      leases.set(lease, Time::max());
      calls_lease = true;
      lock.unlock();
      if (gone) {
        lease->lock_is_gone();
      } else {
        lease->tick();
      }
      lease = nullptr;  // without the mutex: this may be the last reference to the client
      lock.lock();
      calls_lease = false;
      if (closed) called_lease.notify_all();
    }
  }

  void run() {
    for (;;) {
      timer.wait();
      std::unique_lock lock(mutex);
      thread = std::this_thread::get_id();
      armed = Time::max();
      run_due_leases(lock);
      if (closed) return;
      if (!leases.empty()) arm_by(leases.earliest());
    }
  }

  std::vector<Leases::Entry> close() noexcept {
    std::unique_lock lock(mutex);
    closed = true;
    work = nullptr;
    arm_by({});
    auto all = leases.take_all();
    if (thread != std::this_thread::get_id()) called_lease.wait(lock, [this] { return !calls_lease; });
    return all;
  }

  std::mutex mutex;
  const std::optional<asio::any_io_executor> kept_busy;
  asio::any_io_executor work;  // counts as work of the context; empty if there are no leases
  os::BootTimer timer;
  Leases leases;
  Time armed = Time::max();
  std::thread::id thread;
  bool calls_lease = false;
  std::condition_variable called_lease;
  bool closed = false;
};

// Ends the threads that post to a context before the context is destroyed. Leases may live until then: in coroutines
// that the context destroys.
class LeaseScheduler::ContextService final : public asio::execution_context::service {
 public:
  static inline asio::execution_context::id id;

  explicit ContextService(asio::execution_context& context) : asio::execution_context::service(context) {}

  void add(const std::shared_ptr<State>& scheduler) {
    const std::lock_guard lock(mutex_);
    std::erase_if(schedulers_, [](const auto& entry) { return entry.expired(); });
    schedulers_.push_back(scheduler);
  }

  // Called before the context's own services are shut down.
  void shutdown() override {
    std::vector<std::weak_ptr<State>> schedulers;
    {
      const std::lock_guard lock(mutex_);
      schedulers.swap(schedulers_);
    }
    for (const auto& entry : schedulers) {
      if (const auto scheduler = entry.lock()) (void)scheduler->close();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<State>> schedulers_;
};

LeaseScheduler::LeaseScheduler(std::optional<asio::any_io_executor> kept_busy)
    : state_(std::make_shared<State>(std::move(kept_busy))) {
  if (state_->kept_busy) {
    asio::use_service<ContextService>(asio::query(*state_->kept_busy, asio::execution::context)).add(state_);
  }
  thread_ = os::start_thread("syncguard-lease", [state = state_] { state->run(); });
}

LeaseScheduler::~LeaseScheduler() {
  (void)close();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

bool LeaseScheduler::schedule(const std::shared_ptr<LeaseState>& lease, Time due) {
  const std::lock_guard lock(state_->mutex);
  if (state_->closed) return false;
  asio::any_io_executor work;
  if (state_->leases.empty() && state_->kept_busy) {
    work = asio::prefer(*state_->kept_busy, asio::execution::outstanding_work.tracked);
  }
  // A loss must not be moved to a later time.
  const Time next = state_->leases.due(*lease) == store_lost_lock ? store_lost_lock : due;
  state_->leases.set(lease, next);
  if (work) state_->work = std::move(work);
  state_->arm_by(next);
  return true;
}

void LeaseScheduler::remove(LeaseState& lease) noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->leases.remove(lease);
  if (state_->leases.empty()) state_->work = nullptr;
}

std::function<void()> LeaseScheduler::locks_are_gone() const {
  return [weak = std::weak_ptr(state_)] {
    const auto state = weak.lock();
    if (!state) return;
    const std::lock_guard lock(state->mutex);
    if (state->leases.empty()) return;
    state->leases.set_all(store_lost_lock);
    state->arm_by(store_lost_lock);
  };
}

std::vector<LeaseScheduler::Leases::Entry> LeaseScheduler::close() noexcept { return state_->close(); }

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
