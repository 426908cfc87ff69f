// For what only blocks, and cannot be told to end.
#pragma once

#include "async/thread.hpp"
#include "async/wake_up.hpp"

#include <syncguard/backend.hpp>

#include <asio/awaitable.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

namespace syncguard::async {

// Runs a function on a thread of its own, and returns or throws what it does. Ends by the limits, too, with the given
// words and effect; then the function goes on by itself and nobody hears of it. It must own what it uses.
template <typename Result>
asio::awaitable<Result> run_aside(const char* thread_name, std::function<Result()> function, CallLimits limits,
                                  const char* too_late, Effect if_too_late = Effect::none) {
  struct Outcome {
    std::optional<Result> result;
    std::exception_ptr error;
    const std::shared_ptr<WakeUp> known = std::make_shared<WakeUp>();
  };
  const auto outcome = std::make_shared<Outcome>();
  try {
    start_thread(thread_name, [outcome, function = std::move(function)] {
      try {
        outcome->result = function();
      } catch (...) {
        outcome->error = std::current_exception();
      }
      outcome->known->wake();
    }).detach();
  } catch (const std::system_error&) {
    throw LockError(ErrorCode::service_unavailable, "the system has no thread left");
  }
  const auto reason = co_await outcome->known->wait(limits.deadline, limits.stop);
  if (reason != WakeUp::Reason::woken) give_up(reason, too_late, if_too_late);
  if (outcome->error) std::rethrow_exception(outcome->error);
  co_return std::move(*outcome->result);
}

}  // namespace syncguard::async
