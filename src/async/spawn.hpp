// Starting coroutines from ordinary functions.
#pragma once

#include "async/inline_executor.hpp"

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

// Whether what this thread starts now is all that it will do before it blocks: to be sent at once instead of together
// with what the thread does next, and free to block the thread by itself.
inline bool& this_thread_is_about_to_block() noexcept {
  static thread_local bool about_to_block = false;
  return about_to_block;
}

// Says whether it is, for as long as this exists.
class AboutToBlock {
 public:
  explicit AboutToBlock(bool about_to_block) noexcept
      : before_(std::exchange(this_thread_is_about_to_block(), about_to_block)) {}
  AboutToBlock(const AboutToBlock&) = delete;
  AboutToBlock& operator=(const AboutToBlock&) = delete;
  ~AboutToBlock() { this_thread_is_about_to_block() = before_; }

 private:
  const bool before_;
};

// Starts a coroutine on this thread and lets it go on by itself. It must not throw.
inline void spawn(const asio::any_io_executor& executor, asio::awaitable<void> coroutine) {
  // The thread may be, but not for this.
  const AboutToBlock about_to_block(false);
  const ImmediateExecutor immediate(asio::query(executor, asio::execution::context));
  asio::co_spawn(asio::any_io_executor(InlineExecutor(executor)), std::move(coroutine),
                 asio::bind_executor(immediate, [](const std::exception_ptr& error) {
                   if (error) std::terminate();
                 }));
}

// Starts a coroutine on a strand, later, so that the caller may hold a mutex. It must not throw. What it uses without
// owning it is kept alive until it ends.
inline void spawn_on(const asio::any_io_executor& strand, asio::awaitable<void> coroutine,
                     std::shared_ptr<const void> keeps_alive = nullptr) {
  asio::post(strand, [strand, keeps_alive = std::move(keeps_alive), coroutine = std::move(coroutine)]() mutable {
    asio::co_spawn(strand, std::move(coroutine), [keeps_alive](const std::exception_ptr& error) {
      if (error) std::terminate();
    });
  });
}

// A thread that goes to sleep takes longer to wake up than a store nearby takes to answer. So the only blocked thread
// of the process first gives its core to whoever wants it, over and over, for as long as such an answer takes; with
// more of them, the cores have something else to do. See docs/adr/0012-waiting-awake.md.
class WaitingAwake {
 public:
  WaitingAwake() noexcept { ++blocked_threads(); }
  WaitingAwake(const WaitingAwake&) = delete;
  WaitingAwake& operator=(const WaitingAwake&) = delete;
  ~WaitingAwake() { --blocked_threads(); }

  // Returns when done is set, or when it is time to go to sleep.
  static void wait(const std::atomic<bool>& done) noexcept {
    constexpr std::chrono::microseconds longest{100};
    const auto end = std::chrono::steady_clock::now() + longest;
    while (!done && blocked_threads() == 1 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }

 private:
  static std::atomic<int>& blocked_threads() noexcept {
    static std::atomic<int> count{0};
    return count;
  }
};

// Starts a coroutine on this thread, waits for its end wherever that comes, and returns or throws what it did. Must not
// be called on a thread that the coroutine needs.
template <typename Result>
Result run_blocking(const asio::any_io_executor& executor, asio::awaitable<Result> coroutine) {
  // Shared, because whoever ends the coroutine is still about to notify when the waiter has already seen the result.
  struct Outcome {
    std::mutex mutex;
    std::condition_variable arrived;
    std::atomic<bool> done{false};
    std::exception_ptr error;
    Result result{};
  };
  const auto outcome = std::make_shared<Outcome>();
  const ImmediateExecutor immediate(asio::query(executor, asio::execution::context));
  {
    const AboutToBlock about_to_block(true);
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
  }
  {
    const WaitingAwake awake;
    WaitingAwake::wait(outcome->done);
    std::unique_lock lock(outcome->mutex);
    outcome->arrived.wait(lock, [&] { return outcome->done.load(); });
  }
  if (outcome->error) std::rethrow_exception(outcome->error);
  return std::move(outcome->result);
}

}  // namespace syncguard::async
