#include "locks/lease_scheduler.hpp"

#include "async/spawn.hpp"
#include "locks/lease_state.hpp"

namespace syncguard::detail {
namespace {

constexpr std::chrono::milliseconds linger{100};

}  // namespace

LeaseScheduler::LeaseScheduler(const asio::any_io_executor& executor, Idle idle)
    : executor_(executor), idle_(idle), timer_(executor) {}

void LeaseScheduler::schedule(const std::shared_ptr<LeaseState>& lease, Time due) {
  bool start = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    leases_.set(lease, due);
    arm_by(due);
    start = !std::exchange(running_, true);
  }
  if (start) async::spawn(executor_, run(shared_from_this()));
}

void LeaseScheduler::remove(LeaseState& lease) {
  const std::lock_guard lock(mutex_);
  leases_.remove(lease);
  // Not at once: one short lease after the other would start and end the waiting each time.
  if (leases_.empty() && idle_ == Idle::let_executor_go && running_) arm_by(async::BootClock::now() + linger);
}

// Removing a lease leaves the timer as it is: it then rings for nothing, which is cheaper than setting it each time.
void LeaseScheduler::arm_by(Time due) {
  if (due >= armed_) return;
  armed_ = due;
  timer_.arm(due);
}

std::vector<std::shared_ptr<LeaseState>> LeaseScheduler::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (running_) arm_by({});
  return leases_.take_all();
}

asio::awaitable<void> LeaseScheduler::run(std::shared_ptr<LeaseScheduler> self) {
  for (;;) {
    co_await self->timer_.wait();
    std::vector<std::shared_ptr<LeaseState>> due;
    {
      const std::lock_guard lock(self->mutex_);
      self->armed_ = Time::max();
      const auto now = async::BootClock::now();
      auto& leases = self->leases_;
      while (!leases.empty() && leases.earliest() <= now) {
        due.push_back(leases.earliest_item());
        // Off the top until its tick says when it is due again, yet still known.
        leases.set(due.back(), Time::max());
      }
      if (self->closed_ || (leases.empty() && self->idle_ == Idle::let_executor_go)) {
        self->running_ = false;
        co_return;
      }
      if (!leases.empty()) self->arm_by(leases.earliest());
    }
    for (const auto& lease : due) lease->tick();
  }
}

}  // namespace syncguard::detail
