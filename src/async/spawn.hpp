// Starts coroutines from ordinary functions.
#pragma once

#include "async/inline_executor.hpp"

#include <syncguard/detail/immediate_executor.hpp>

#include <asio/awaitable.hpp>
#include <asio/bind_executor.hpp>
#include <asio/co_spawn.hpp>
#include <asio/post.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace syncguard::async {

// Starts a coroutine on this thread, and does not wait for it. Until it ends, the executor's context has work. The
// coroutine must not throw.
inline void spawn(const asio::any_io_executor& executor, asio::awaitable<void> coroutine) {
  const detail::ImmediateExecutor immediate(asio::query(executor, asio::execution::context));
  // An InlineExecutor does not count as work of its context. The executor that it posts to does.
  const auto posts_to = asio::require(executor, asio::execution::blocking.never);
  auto work = asio::prefer(posts_to, asio::execution::outstanding_work.tracked);
  asio::co_spawn(asio::any_io_executor(InlineExecutor(executor)), std::move(coroutine),
                 asio::bind_executor(immediate, [work = std::move(work)](const std::exception_ptr& error) {
                   if (error) std::terminate();
                 }));
}

// Posts the start of a coroutine to a strand, so that the caller may hold a mutex. The coroutine must not throw.
// keeps_alive is held until the coroutine ends, for objects that it uses but does not own.
inline void spawn_on(const asio::any_io_executor& strand, asio::awaitable<void> coroutine,
                     std::shared_ptr<const void> keeps_alive = nullptr) {
  asio::post(strand, [strand, keeps_alive = std::move(keeps_alive), coroutine = std::move(coroutine)]() mutable {
    asio::co_spawn(strand, std::move(coroutine), [keeps_alive](const std::exception_ptr& error) {
      if (error) std::terminate();
    });
  });
}

// Lets a blocked thread spin briefly before it sleeps, because waking it would take longer than the reply of a nearby
// store. Only if it is the only blocked thread of the process: otherwise the cores have other work. While spinning, it
// yields its core repeatedly. See docs/adr/0012-spin-before-sleep.md.
class SpinBeforeSleep {
 public:
  SpinBeforeSleep() noexcept { ++blocked_threads(); }
  SpinBeforeSleep(const SpinBeforeSleep&) = delete;
  SpinBeforeSleep& operator=(const SpinBeforeSleep&) = delete;
  ~SpinBeforeSleep() { --blocked_threads(); }

  // Returns when done is set, or when the thread should sleep.
  static void wait(const std::atomic<bool>& done) noexcept {
    constexpr std::chrono::microseconds max_spin{100};
    const auto end = std::chrono::steady_clock::now() + max_spin;
    while (!done && blocked_threads() == 1 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }

 private:
  static std::atomic<int>& blocked_threads() noexcept {
    static std::atomic<int> count{0};
    return count;
  }
};

// Starts a coroutine on this thread, waits until it ends on any thread, and returns its result or throws its exception.
// Must not be called on a thread that the coroutine needs.
template <typename Result>
Result run_blocking(const asio::any_io_executor& executor, asio::awaitable<Result> coroutine) {
  // Shared, because the completing thread may still be about to notify when the waiter has already seen the result. Not
  // a Promise, which would lock a mutex whenever SpinBeforeSleep looks: measured, that adds 50 to 150 ns to every call.
  struct Outcome {
    std::mutex mutex;
    std::condition_variable arrived;
    std::atomic<bool> done{false};
    std::exception_ptr error;
    Result result{};
  };
  const auto outcome = std::make_shared<Outcome>();
  const detail::ImmediateExecutor immediate(asio::query(executor, asio::execution::context));
  asio::co_spawn(asio::any_io_executor(InlineExecutor(executor)), std::move(coroutine),
                 asio::bind_executor(immediate, [outcome](std::exception_ptr error, Result result) {
                   {
                     const std::lock_guard lock(outcome->mutex);
                     outcome->error = std::move(error);
                     outcome->result = std::move(result);
                     outcome->done = true;
                   }
                   outcome->arrived.notify_one();
                 }));
  {
    const SpinBeforeSleep awake;
    SpinBeforeSleep::wait(outcome->done);
    std::unique_lock lock(outcome->mutex);
    outcome->arrived.wait(lock, [&] { return outcome->done.load(); });
  }
  if (outcome->error) std::rethrow_exception(outcome->error);
  return std::move(outcome->result);
}

}  // namespace syncguard::async
