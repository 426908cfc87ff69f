// The one way a coroutine of ours waits for something that is not I/O.
#pragma once

#include <syncguard/error.hpp>

#include <asio/awaitable.hpp>
#include <asio/steady_timer.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

namespace syncguard::async {

// A signal to one waiting coroutine. Latched: a wake() that comes before wait() ends that wait at once. Always owned by
// a shared_ptr, since whoever wakes may come late, even after the executor's context is gone.
class WakeUp : public std::enable_shared_from_this<WakeUp> {
 public:
  enum class Reason { woken, timed_out, stopped };

  // Ends the current wait, or the next one. Any thread. Never resumes the coroutine on the calling thread.
  void wake() noexcept;

  // Waits until woken, until the given time (on the steady clock; time_point::max() is never), or until a stop is
  // requested. Uses the awaiting coroutine's executor. One wait at a time.
  asio::awaitable<Reason> wait(std::chrono::steady_clock::time_point until, std::stop_token stop);

 private:
  void stop() noexcept;

  std::mutex mutex_;
  asio::steady_timer* timer_ = nullptr;  // of the wait that is under way, in its coroutine
  bool woken_ = false;
  bool stopped_ = false;
};

// Throws LockError for a wait that somebody should have ended: aborted if it was stopped, else network_timeout.
[[noreturn]] void give_up(WakeUp::Reason reason, const std::string& too_late, Effect effect = Effect::none);

// Throws LockError(aborted) if a stop was requested.
inline void expect_no_stop(const std::stop_token& stop) {
  if (stop.stop_requested()) give_up(WakeUp::Reason::stopped, "");
}

inline void expect_woken(WakeUp::Reason reason, const std::string& too_late) {
  if (reason != WakeUp::Reason::woken) give_up(reason, too_late);
}

}  // namespace syncguard::async
