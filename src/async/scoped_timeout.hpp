// A timeout that is active while it is in scope.
#pragma once

#include <asio/any_io_executor.hpp>
#include <asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace syncguard::async {

// Calls a function at the given time, unless it is destroyed before. Must be used only on the given strand, which also
// runs the function.
class ScopedTimeout {
 public:
  ScopedTimeout(const asio::any_io_executor& strand, std::chrono::steady_clock::time_point end,
                std::function<void()> on_timeout)
      : timer_(strand, end) {
    timer_.async_wait([state = state_, on_timeout = std::move(on_timeout)](const asio::error_code& canceled) {
      if (canceled || *state == State::not_needed) return;
      *state = State::has_expired;
      on_timeout();
    });
  }
  ScopedTimeout(const ScopedTimeout&) = delete;
  ScopedTimeout& operator=(const ScopedTimeout&) = delete;
  // Not only a cancellation: the timer may have expired already, and its handler may still be queued.
  ~ScopedTimeout() { *state_ = State::not_needed; }

  // Whether the function was called.
  [[nodiscard]] bool has_expired() const noexcept { return *state_ == State::has_expired; }

 private:
  enum class State { lasts, has_expired, not_needed };
  const std::shared_ptr<State> state_ = std::make_shared<State>(State::lasts);
  asio::steady_timer timer_;
};

}  // namespace syncguard::async
