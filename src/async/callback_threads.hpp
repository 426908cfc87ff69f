// Where the application's callbacks run, so that they cannot hold up anything of ours.
#pragma once

#include <asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>

namespace syncguard::async {

// Runs functions on threads of its own: one, and more (up to a limit) while all others are busy, so that a callback
// that blocks does not keep the next one from running. With a limit of one, functions run one after the other, in
// order. What they throw is ignored.
class CallbackThreads {
 public:
  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

  // Starts the first thread at once, so that a system without threads to give fails here and not later.
  CallbackThreads(std::string name, std::size_t most_threads);
  CallbackThreads(const CallbackThreads&) = delete;
  CallbackThreads& operator=(const CallbackThreads&) = delete;
  // As finish(Leftover::run); waits a moment for threads that have nothing left to do.
  ~CallbackThreads();

  // False, and function is dropped, if so many functions wait already or finish was called.
  bool post(std::function<void()> function, std::size_t capacity = unlimited);

  // Whether the calling thread is one of these.
  [[nodiscard]] bool is_this_thread() const;

  // Returns when nothing is queued and nothing runs, or at the given time on the steady clock.
  asio::awaitable<void> idle(std::chrono::steady_clock::time_point until);

  enum class Leftover { run, drop };
  // Takes no more. The threads end by themselves once nothing is left.
  void finish(Leftover leftover);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace syncguard::async
