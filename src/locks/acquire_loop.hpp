// The rules of waiting for a lock, as a pure state machine: (now, event) -> next step.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/error.hpp>
#include <syncguard/options.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

// The state machine of one acquisition. The driver does what step() says, reports the result, and calls step() again.
//
//   step          event                            next step
//   ------------  -------------------------------  -----------------------------------------------------------
//   wait_in_queue first_in_queue                   join
//                 timer (the timeout)              fail: AcquisitionTimeout after 0 attempts
//   attempt       granted                          (the loop ends)
//                 contended, time or retries used  fail: AcquisitionTimeout
//                 contended, not yet joined        join
//                 contended, joined                sleep
//                 failed, transient                sleep (fail: AcquisitionTimeout, if time or retries are used)
//                 failed, permanent                fail: that error
//   join          joined                           attempt: events before joining were not seen
//                 joined, key seen taken           sleep
//                 not_joined                       sleep, or attempt if there was none since the last wait
//   sleep         woken                            attempt                                        (no retry)
//                 timer, holder's lock expired     attempt (not if the queue notices that)        (no retry)
//                 timer, delay ended               join                                           (a retry)
//                 timer, delay ended, no queue     attempt                                        (a retry)
//                 timer, delay ended after failed  attempt: whether the key is taken is unknown   (a retry)
//                 timer, timeout                   attempt, the last one
//   any           stopped                          fail: Aborted
//
// Therefore every sleep starts after joining and after the key was seen held once more, and no wake-up is missed. A
// woken attempt that finds the key taken joins again, because its turn is used. An attempt after a long sleep joins
// again, too, because its entry may have been removed.
class AcquireLoop {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Step { wait_in_queue, attempt, join, sleep, fail };
  enum class Start { first_in_queue, behind_others };
  enum class JoinFailure { this_time, permanent };

  // options must be valid.
  AcquireLoop(const WaitOptions& options, Time now, Start start, std::function<double()> random);

  [[nodiscard]] Step step() const noexcept { return step_; }
  // When the timer is due, in the steps wait_in_queue and sleep. Time::max() means never.
  [[nodiscard]] Time wait_until() const noexcept { return wait_until_; }
  // Why step() is fail.
  [[nodiscard]] const LockError& error() const noexcept { return *error_; }
  // Whether an attempt may have taken effect without a reply. It must then be retracted.
  [[nodiscard]] bool in_doubt() const noexcept { return in_doubt_; }
  [[nodiscard]] std::int64_t attempts() const noexcept { return attempts_; }
  // Whether the loop continues if an attempt now finds the key taken.
  [[nodiscard]] bool can_wait(Time now) const noexcept;
  // When the timeout ends. Time::max() means never.
  [[nodiscard]] Time deadline() const noexcept { return deadline_; }

  void first_in_queue() noexcept;
  void contended(Time now, const Contended& reply);
  void failed(Time now, const LockError& error);
  struct Joined {
    // Set if joining found the key taken.
    std::optional<std::chrono::milliseconds> free_in{};
    // The queue wakes this waiter after the holder's lock has expired, too.
    bool notices_expiry = false;
  };
  void joined(Time now, const Joined& queue);
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

  std::int64_t attempts_ = 0;
  int retries_ = 0;
  // When the current retry delay ends. Wake-ups do not restart the delay.
  std::optional<Time> retry_at_;
  // When the holder's lock expires, or a reservation ends, according to the last reply.
  Time free_at_ = Time::max();
  bool queue_exists_ = true;
  bool queue_notices_expiry_ = false;
  bool join_tried_since_wait_ = false;
  bool attempted_since_wait_ = false;
  bool last_attempt_failed_ = false;
  bool last_attempt_ = false;
  bool in_doubt_ = false;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
