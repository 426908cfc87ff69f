// Threads for the application's callbacks, so that they cannot delay the library.
#pragma once

#include <asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>

namespace syncguard::async {

// Runs functions on its own threads, in the order in which they were posted. Exceptions are ignored.
class CallbackThreads {
 public:
  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

  // A function with its place in the queue, so that posting it needs no memory. Can be posted once.
  class Callback {
   public:
    Callback() = default;
    Callback(const Callback&) = delete;
    Callback& operator=(const Callback&) = delete;
    virtual ~Callback() = default;

   private:
    friend class CallbackThreads;
    virtual void run() = 0;

    std::shared_ptr<Callback> next_;
  };

  enum class Growth {
    // One thread, started by the first function. Each function starts after the previous one has returned.
    none,
    // A function never waits for one that blocks. While one thread runs functions, a second one stands by. When the
    // running function blocks, the second thread takes over, and another one is started to stand by. Functions that do
    // not block need only two threads, however many functions there are. The constructor starts both, so that a system
    // that cannot start threads fails there, and one blocked function never needs a new thread.
    while_blocked,
  };

  // starved, which must not throw, is called on one of the threads when functions may have to wait because the system
  // cannot start another thread.
  CallbackThreads(std::string name, Growth growth, std::function<void()> starved = nullptr);
  CallbackThreads(const CallbackThreads&) = delete;
  CallbackThreads& operator=(const CallbackThreads&) = delete;
  // Calls finish(QueuedFunctions::run), and waits briefly for idle threads to end.
  ~CallbackThreads();

  enum class Posted {
    queued,
    full,       // the queue has reached the given capacity, or finish() was called
    no_thread,  // the system cannot start a thread to run it
  };
  // Drops the function unless it was queued. Throws std::bad_alloc.
  Posted post(std::function<void()> function, std::size_t capacity = unlimited);
  Posted post(std::shared_ptr<Callback> callback, std::size_t capacity = unlimited) noexcept;

  // Runs the queued functions on the calling thread, as long as every thread is blocked and the system cannot start
  // another one.
  void run_if_starved();

  // Whether the calling thread is one of these.
  [[nodiscard]] bool is_this_thread() const;

  // Returns when nothing is queued and nothing runs, or at the given time on the steady clock.
  asio::awaitable<void> idle(std::chrono::steady_clock::time_point until);
  // The same for a thread that may block. Returns false on timeout.
  bool wait_until_idle(std::chrono::steady_clock::time_point until);

  enum class QueuedFunctions { run, drop };
  // Accepts no more functions. The threads end when the queue is empty.
  void finish(QueuedFunctions leftover);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace syncguard::async
