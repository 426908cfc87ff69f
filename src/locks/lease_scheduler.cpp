#include "locks/lease_scheduler.hpp"

#include "async/spawn.hpp"
#include "locks/lease_state.hpp"

namespace syncguard {
inline namespace v0_1 {
namespace detail {
namespace {

constexpr std::chrono::milliseconds idle_grace_period{100};

}  // namespace

LeaseScheduler::LeaseScheduler(const asio::any_io_executor& executor, Idle idle)
    : executor_(executor), idle_(idle), timer_(executor) {}

bool LeaseScheduler::schedule(const std::shared_ptr<LeaseState>& lease, Time due) {
  bool start = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    leases_.set(lease, due);
    arm_by(due);
    start = !std::exchange(running_, true);
  }
  if (start) async::spawn(executor_, run(shared_from_this()));
  return true;
}

void LeaseScheduler::remove(LeaseState& lease) {
  const std::lock_guard lock(mutex_);
  leases_.remove(lease);
  // Not immediately: consecutive short leases would start and stop the wait each time.
  if (leases_.empty() && idle_ == Idle::stop_executor && running_) arm_by(BootClock::now() + idle_grace_period);
}

// Removing a lease does not change the timer. A spurious wake-up is cheaper than setting the timer each time.
void LeaseScheduler::arm_by(Time due) {
  if (due >= armed_) return;
  armed_ = due;
  timer_.arm(due);
}

std::vector<std::shared_ptr<LeaseState>> LeaseScheduler::locks_are_gone() {
  std::vector<std::shared_ptr<LeaseState>> leases;
  {
    const std::lock_guard lock(mutex_);
    leases = leases_.all();
  }
  for (const auto& lease : leases) lease->lock_is_gone();
  return leases;
}

std::vector<std::shared_ptr<LeaseState>> LeaseScheduler::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (running_) arm_by({});
  return leases_.take_all();
}

asio::awaitable<void> LeaseScheduler::run(std::shared_ptr<LeaseScheduler> self) {
  for (;;) {
    if (!co_await self->timer_.wait()) co_return;
    std::vector<std::shared_ptr<LeaseState>> due;
    {
      const std::lock_guard lock(self->mutex_);
      self->armed_ = Time::max();
      const auto now = BootClock::now();
      auto& leases = self->leases_;
      while (!leases.empty() && leases.earliest() <= now) {
        due.push_back(leases.earliest_item());
        // Moved to the end, not removed: its tick() sets the next due time.
        leases.set(due.back(), Time::max());
      }
      if (self->closed_ || (leases.empty() && self->idle_ == Idle::stop_executor)) {
        self->running_ = false;
        co_return;
      }
      if (!leases.empty()) self->arm_by(leases.earliest());
    }
    for (const auto& lease : due) lease->tick();
  }
}

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
