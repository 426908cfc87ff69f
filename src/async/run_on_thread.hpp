// Runs blocking functions that cannot be canceled on their own thread.
#pragma once

#include "async/event.hpp"
#include "os/threads.hpp"

#include <syncguard/call_limits.hpp>

#include <asio/awaitable.hpp>

#include <functional>
#include <memory>
#include <system_error>
#include <utility>

namespace syncguard::async {

// Runs a function on its own thread, and returns its result or throws its exception. Also ends at the limits, with the
// given message and effect; the function then continues, and its result is dropped. It must own the objects it uses,
// and should end soon when os::is_exiting(): exit() waits for it.
template <typename Result>
asio::awaitable<Result> run_on_thread(const char* thread_name, std::function<Result()> function, CallLimits limits,
                                      const char* too_late, Effect if_too_late = Effect::none) {
  const Promise<Result> outcome;
  struct Task {
    Promise<Result> outcome;
    std::function<Result()> function;
  };
  try {
    os::start_thread(thread_name, [delays_exit = std::make_shared<os::DelaysExit>(),
                                   task = std::make_shared<const Task>(Task{outcome, std::move(function)})]() mutable {
      task->outcome.set_from(task->function);
      task.reset();
      delays_exit.reset();
    }).detach();
  } catch (const std::system_error&) {
    throw LockError(ErrorCode::service_unavailable, "cannot start a thread");
  }
  co_await outcome.ready().wait(limits, too_late, if_too_late);
  co_return std::move(outcome.value());
}

}  // namespace syncguard::async
