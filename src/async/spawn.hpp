// Starting coroutines from ordinary functions.
#pragma once

#include "async/inline_executor.hpp"

#include <asio/awaitable.hpp>
#include <asio/bind_executor.hpp>
#include <asio/co_spawn.hpp>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

namespace syncguard::async {

// Starts a coroutine on this thread and lets it go on by itself. It must not throw.
inline void spawn(const asio::any_io_executor& executor, asio::awaitable<void> coroutine) {
  const ImmediateExecutor immediate(asio::query(executor, asio::execution::context));
  asio::co_spawn(asio::any_io_executor(InlineExecutor(executor)), std::move(coroutine),
                 asio::bind_executor(immediate, [](const std::exception_ptr& error) {
                   if (error) std::terminate();
                 }));
}

// Starts a coroutine on this thread, waits for its end wherever that comes, and returns or throws what it did. Must not
// be called on a thread that the coroutine needs.
template <typename Result>
Result run_blocking(const asio::any_io_executor& executor, asio::awaitable<Result> coroutine) {
  struct Outcome {
    std::mutex mutex;
    std::condition_variable arrived;
    bool done = false;
    std::exception_ptr error;
    Result result{};
  } outcome;
  const ImmediateExecutor immediate(asio::query(executor, asio::execution::context));
  asio::co_spawn(asio::any_io_executor(InlineExecutor(executor)), std::move(coroutine),
                 asio::bind_executor(immediate, [&outcome](std::exception_ptr error, Result result) {
                   // Notified under the lock: the waiter must not return, and take outcome along, before that is over.
                   const std::lock_guard lock(outcome.mutex);
                   outcome.error = std::move(error);
                   outcome.result = std::move(result);
                   outcome.done = true;
                   outcome.arrived.notify_one();
                 }));
  std::unique_lock lock(outcome.mutex);
  outcome.arrived.wait(lock, [&outcome] { return outcome.done; });
  if (outcome.error) std::rethrow_exception(outcome.error);
  return std::move(outcome.result);
}

}  // namespace syncguard::async
