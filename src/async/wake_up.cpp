#include "async/wake_up.hpp"

#include <asio/associated_executor.hpp>
#include <asio/bind_executor.hpp>
#include <asio/post.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <algorithm>
#include <utility>

namespace syncguard::async {
namespace {

// Far enough to be never, near enough for every time arithmetic inside Asio.
constexpr std::chrono::hours never{24 * 365 * 10};

}  // namespace

void WakeUp::wake() noexcept {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  if (timer_ != nullptr) timer_->cancel();
}

void WakeUp::stop() noexcept {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (timer_ != nullptr) timer_->cancel();
}

asio::awaitable<WakeUp::Reason> WakeUp::wait(std::chrono::steady_clock::time_point until, std::stop_token stop) {
  const auto wait_executor = co_await asio::this_coro::executor;
  asio::steady_timer timer(wait_executor, std::min(until, std::chrono::steady_clock::now() + never));
  {
    const std::lock_guard lock(mutex_);
    stopped_ = false;
    timer_ = &timer;
  }
  // However this ends, also by the context being destroyed with this coroutine in it: whoever wakes later must not find
  // the timer, and whoever holds the mutex now may be about to touch it.
  const struct ForgetTimer {
    std::shared_ptr<WakeUp> owner;
    ~ForgetTimer() {
      const std::lock_guard lock(owner->mutex_);
      owner->timer_ = nullptr;
    }
  } forget_timer{shared_from_this()};
  {
    const std::stop_callback on_stop(stop, [this] { this->stop(); });
    // The mutex makes "already signalled?" and "start to wait" one step; a timer alone is not thread-safe. self keeps
    // the mutex alive where the coroutine ends on another thread before this function has returned.
    auto start_waiting = [this](auto handler) {
      const auto self = shared_from_this();
      const std::lock_guard lock(self->mutex_);
      const auto executor = asio::get_associated_executor(handler);
      if (self->woken_ || self->stopped_) {
        asio::post(executor, std::move(handler));
      } else {
        self->timer_->async_wait(asio::bind_executor(
            executor, [handler = std::move(handler)](const asio::error_code&) mutable { std::move(handler)(); }));
      }
    };
    co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(start_waiting, asio::use_awaitable);
  }
  const std::lock_guard lock(mutex_);
  if (stopped_) co_return Reason::stopped;
  co_return std::exchange(woken_, false) ? Reason::woken : Reason::timed_out;
}

void give_up(WakeUp::Reason reason, const std::string& too_late, Effect effect) {
  if (reason == WakeUp::Reason::stopped) throw LockError(ErrorCode::aborted, "a stop was requested", effect);
  throw LockError(ErrorCode::network_timeout, too_late, effect);
}

}  // namespace syncguard::async
