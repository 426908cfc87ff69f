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

  enum class Growth {
    // One thread, started by the first function. Each function starts after the previous one has returned.
    none,
    // A function never waits for one that blocks. While functions are queued, a second thread stands by. When the
    // running function blocks, that thread takes over, and another one is started to stand by. Functions that do not
    // block need only two threads, however many functions there are. The first thread is started by the constructor, so
    // that a system that cannot start threads fails there.
    while_blocked,
  };

  CallbackThreads(std::string name, Growth growth);
  CallbackThreads(const CallbackThreads&) = delete;
  CallbackThreads& operator=(const CallbackThreads&) = delete;
  // Calls finish(QueuedFunctions::run), and waits briefly for idle threads to end.
  ~CallbackThreads();

  // Returns false and drops function if the queue is full, if there is no thread to run it, or if finish was called.
  bool post(std::function<void()> function, std::size_t capacity = unlimited);

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
