#include "backends/look_loop.hpp"

#include "async/spawn.hpp"

#include <asio/require.hpp>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

namespace syncguard::backends {

// Lives in the frame of the coroutine, which may be destroyed before it has begun.
class LookLoop::Running {
 public:
  explicit Running(std::shared_ptr<LookLoop> loop) noexcept : loop_(std::move(loop)) {}
  Running(Running&&) noexcept = default;
  Running& operator=(Running&&) = delete;
  ~Running() {
    if (!loop_) return;
    const std::lock_guard lock(loop_->mutex_);
    loop_->is_running_ = false;
  }

  // False from when the last waiter was removed.
  bool continues() {
    const auto loop = loop_;
    const std::lock_guard lock(loop->mutex_);
    if (!loop->waiters_.empty()) return true;
    loop->is_running_ = false;
    loop_.reset();
    return false;
  }

 private:
  std::shared_ptr<LookLoop> loop_;
};

void LookLoop::start(const asio::any_io_executor& executor, Look look) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_running_, true)) return;
  }
  Running running(shared_from_this());
  async::spawn_on(asio::require(executor, asio::execution::blocking.never), run(std::move(look), std::move(running)));
}

asio::awaitable<void> LookLoop::run(Look look, Running running) {
  while (running.continues()) {
    std::vector<Waiters::Look> due;
    bool failed = false;
    try {
      changed_.reset();
      // Ends soon after the last waiter was removed.
      const auto until = std::min(waiters_.next_look(), Waiters::Clock::now() + pace_.longest);
      if (co_await changed_.wait(until, stop_.get_token()) == async::WaitResult::stopped) co_return;
      due = waiters_.take_due(Waiters::Clock::now(), max_count_);
      if (!due.empty()) co_await look(due);
    } catch (const std::exception&) {
      failed = true;
    }
    if (!failed) continue;
    // Out of memory. Not repeated at once: the next waiter that joins starts the loop again.
    for (const auto& each : due) waiters_.look_later(each.id);
    co_return;
  }
}

}  // namespace syncguard::backends
