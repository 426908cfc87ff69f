// How the library's coroutines wait for anything that is not I/O.
#pragma once

#include <syncguard/call_limits.hpp>
#include <syncguard/error.hpp>

#include <asio/awaitable.hpp>

#include <chrono>
#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace syncguard::async {

// How a wait ended.
enum class WaitResult { set, timed_out, stopped };

// A flag that any number of coroutines and threads can wait for. Any thread may use it, even while it holds a mutex:
// set() never resumes a coroutine on the calling thread. Copies share the flag, so that it can be set after the waiter,
// or the executor's context, is gone.
class Event {
 public:
  Event();

  // Ends all current waits, and all that start before the next reset().
  void set() const noexcept;
  void reset() const noexcept;
  [[nodiscard]] bool is_set() const noexcept;

  // Waits until the event is set, until the given time (on the steady clock; time_point::max() is never), or until a
  // stop is requested, which takes precedence. Uses the awaiting coroutine's executor. Does not suspend if the event is
  // already set.
  [[nodiscard]] asio::awaitable<WaitResult> wait(std::chrono::steady_clock::time_point until,
                                                 std::stop_token stop = {}) const;
  // Throws LockError with the given effect if the event is not set within the limits: aborted if a stop was requested,
  // else network_timeout with the given message.
  [[nodiscard]] asio::awaitable<void> wait(CallLimits limits, const char* timeout_message,
                                           Effect effect = Effect::none) const;

  // Blocks the calling thread. Returns false on timeout.
  bool wait_blocking(std::chrono::steady_clock::time_point until) const;

  friend bool operator==(const Event&, const Event&) noexcept = default;

 private:
  struct State;
  // Static and with its own reference to the state: the Event may be destroyed before the wait ends.
  static asio::awaitable<WaitResult> wait_for(std::shared_ptr<State> state, std::chrono::steady_clock::time_point until,
                                              std::stop_token stop);

  std::shared_ptr<State> state_;
};

// Waits until the given time, or until a stop is requested.
[[nodiscard]] asio::awaitable<WaitResult> sleep_until(std::chrono::steady_clock::time_point until,
                                                      std::stop_token stop = {});

// A value or an exception that one thread sets, once, and that others wait for. Copies share it.
template <typename Value>
class Promise {
 public:
  void set_value(Value value) const {
    outcome_->value.emplace(std::move(value));
    outcome_->ready.set();
  }
  void set_error(std::exception_ptr error) const noexcept {
    outcome_->error = std::move(error);
    outcome_->ready.set();
  }
  // Sets the value that function returns, or the exception that it throws.
  template <std::invocable Function>
  void set_from(Function&& function) const {
    try {
      set_value(std::forward<Function>(function)());
    } catch (...) {
      set_error(std::current_exception());
    }
  }

  [[nodiscard]] bool is_ready() const noexcept { return outcome_->ready.is_set(); }
  // Requires is_ready().
  [[nodiscard]] bool has_error() const noexcept { return outcome_->error != nullptr; }
  // Throws the exception if there is one. Requires is_ready().
  [[nodiscard]] Value& value() const {
    if (outcome_->error) std::rethrow_exception(outcome_->error);
    return *outcome_->value;
  }
  // Set when the promise is ready.
  [[nodiscard]] const Event& ready() const noexcept { return outcome_->ready; }

  friend bool operator==(const Promise&, const Promise&) noexcept = default;

 private:
  // The mutex inside the event makes the other members visible to the waiting threads.
  struct Outcome {
    std::optional<Value> value;
    std::exception_ptr error;
    const Event ready;
  };
  std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
};

// Throws LockError for a wait that ended before the event was set: aborted if it was stopped, else network_timeout with
// the given message.
[[noreturn]] void throw_ended(WaitResult result, const std::string& timeout_message, Effect effect = Effect::none);

// Throws LockError(aborted) if a stop was requested.
inline void expect_no_stop(const std::stop_token& stop) {
  if (stop.stop_requested()) throw_ended(WaitResult::stopped, "");
}

}  // namespace syncguard::async
