// Giving up what takes too long.
#pragma once

#include <asio/any_io_executor.hpp>
#include <asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace syncguard::async {

// Calls a function at a given time, unless it is gone by then. Used on the given strand alone, where it calls, too.
class Patience {
 public:
  Patience(const asio::any_io_executor& strand, std::chrono::steady_clock::time_point end,
           std::function<void()> give_up)
      : timer_(strand, end) {
    timer_.async_wait([state = state_, give_up = std::move(give_up)](const asio::error_code& cancelled) {
      if (cancelled || *state == State::not_needed) return;
      *state = State::ran_out;
      give_up();
    });
  }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;
  // The timer may have expired already, with its handler still to run.
  ~Patience() { *state_ = State::not_needed; }

  // Whether the function was called.
  [[nodiscard]] bool ran_out() const noexcept { return *state_ == State::ran_out; }

 private:
  enum class State { lasts, ran_out, not_needed };
  const std::shared_ptr<State> state_ = std::make_shared<State>(State::lasts);
  asio::steady_timer timer_;
};

}  // namespace syncguard::async
