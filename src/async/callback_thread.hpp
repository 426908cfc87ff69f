// Where the application's callbacks run, so that they cannot hold up anything of ours.
#pragma once

#include <asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>

namespace syncguard::async {

// Runs functions one after the other on a thread of its own, which starts with the first of them. What they throw is
// ignored.
class CallbackThread {
 public:
  explicit CallbackThread(std::string name);
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;
  // Takes no more; what is queued still runs. Does not wait.
  ~CallbackThread();

  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

  // False, and function is dropped, if so many functions wait already or finish was called.
  bool post(std::function<void()> function, std::size_t capacity = unlimited);

  [[nodiscard]] bool is_this_thread() const;
  // Whether nothing is queued and nothing runs.
  [[nodiscard]] bool is_idle() const;

  // Takes no more; what is queued still runs, and then the thread ends by itself.
  void finish();

 private:
  struct State;
  std::string name_;
  std::shared_ptr<State> state_;
};

// Returns when everything that was posted before has run, or at the given time on the steady clock.
asio::awaitable<void> drained(CallbackThread& thread, std::chrono::steady_clock::time_point until);

}  // namespace syncguard::async
