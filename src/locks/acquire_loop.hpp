// The rules of waiting for a lock, without doing any of it: (now, event) -> what to do next.
#pragma once

#include <syncguard/error.hpp>
#include <syncguard/options.hpp>

#include <chrono>
#include <functional>
#include <optional>

namespace syncguard::detail {

// One caller's way to a lock. Whoever drives it does what step() says, reports what came of it, and looks again.
//
//   step          event                            next step
//   ------------  -------------------------------  -----------------------------------------------------------
//   wait_in_line  first_in_line                    join
//                 timer (the time-out)             fail: AcquisitionTimeout after 0 attempts
//   attempt       granted                          (the loop is over)
//                 contended, time or retries over  fail: AcquisitionTimeout
//                 contended, not yet joined        join
//                 contended, joined                sleep
//                 failed, transient                sleep (fail: AcquisitionTimeout, if time or retries are over)
//                 failed, permanent                fail: that error
//   join          joined                           attempt: what happened before joining went unseen
//                 not_joined                       sleep, or attempt if there was none since the last wait
//   sleep         woken                            attempt                                        (no retry)
//                 timer, holder's time over        attempt                                        (no retry)
//                 timer, delay over                join, or attempt where there is no queue       (a retry)
//                 timer, time-out                  attempt, the last one
//   any           stopped                          fail: Aborted
//
// So every sleep begins joined, with an attempt after the joining: a wake-up cannot be missed in between. A woken
// attempt that finds the key taken joins again, because its turn is used up; an overslept one because it may have been
// forgotten.
class AcquireLoop {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Step { wait_in_line, attempt, join, sleep, fail };
  enum class Start { first_in_line, behind_others };
  enum class JoinFailure { this_time, for_good };

  // options must be valid.
  AcquireLoop(const WaitOptions& options, Time now, Start start, std::function<double()> random);

  [[nodiscard]] Step step() const noexcept { return step_; }
  // When the timer is due: meaningful in wait_in_line and sleep. Time::max() is never.
  [[nodiscard]] Time wait_until() const noexcept { return wait_until_; }
  // Why step() is fail.
  [[nodiscard]] const LockError& error() const noexcept { return *error_; }
  // Whether an attempt may have taken effect although nobody knows: then somebody must retract it.
  [[nodiscard]] bool in_doubt() const noexcept { return in_doubt_; }
  [[nodiscard]] int attempts() const noexcept { return attempts_; }
  // Whether it goes on if an attempt now finds the key taken.
  [[nodiscard]] bool can_wait(Time now) const noexcept;
  // When the time-out is over. Time::max() is never.
  [[nodiscard]] Time deadline() const noexcept { return deadline_; }

  void first_in_line() noexcept;
  void contended(Time now, std::chrono::milliseconds free_in);
  void failed(Time now, const LockError& error);
  void joined() noexcept;
  void not_joined(Time now, JoinFailure failure);
  void woken() noexcept;
  void timer(Time now);
  void stopped();

 private:
  void sleep_or_give_up(Time now);
  void begin_attempt() noexcept;
  void fail(const LockError& error);
  void time_out(Time now, const char* why);

  const WaitOptions options_;
  const Time start_;
  const Time deadline_;
  const std::function<double()> random_;

  Step step_;
  Time wait_until_;
  std::optional<LockError> error_;
  std::optional<LockError> last_transient_;

  int attempts_ = 0;
  int retries_ = 0;
  // When the delay that is running now is over. Survives wake-ups: they do not restart it.
  std::optional<Time> retry_at_;
  // When the holder's time is over, as far as the last answer told.
  Time free_at_ = Time::max();
  bool queue_exists_ = true;
  bool join_tried_since_wait_ = false;
  bool attempted_since_wait_ = false;
  bool last_attempt_ = false;
  bool in_doubt_ = false;
};

}  // namespace syncguard::detail
