// The rules of holding a lock, as a pure state machine: (now, event) -> next state.
#pragma once

#include <syncguard/boot_clock.hpp>

#include <syncguard/error.hpp>

#include <chrono>
#include <optional>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

// One lease. All times are on the BootClock.
//
//   state  event                                   next state
//   -----  --------------------------------------  -----------------------------------------------------------
//   held   tick, deadline passed                   lost: fire lost()
//          tick, renewal due                       held: send an extend
//          extended                                held: deadline = time of sending + remaining, next renewal later
//          extend refused                          lost: fire lost()
//          extend begins                           held: the earlier of the deadlines before and after it
//          extend failed                           held: renewal again soon; if not in doubt, the deadline before it
//          release begins                          releasing: no more renewals, lost() does not fire
//          client closed                           over: fire lost()
//   lost   release begins                          releasing
//   releasing  release failed                      releasing: release may be called again
//   any    end (released, detached, found gone, closed)  over
//
// The deadline counts from before the granting request was sent, so it passes before the store's own.
class LeaseMachine {
 public:
  using Time = BootClock::time_point;
  enum class Renewal { none, automatic };
  enum class State { held, releasing, lost, over };
  enum class Due { nothing, renewal, lost };

  // Limits the remaining time in a reply to the requested ttl, because a broken or hostile server may send anything.
  // The functions below apply it.
  [[nodiscard]] static std::chrono::milliseconds bounded(std::chrono::milliseconds remaining,
                                                         std::chrono::milliseconds ttl) noexcept;

  LeaseMachine(Time sent_at, std::chrono::milliseconds remaining, std::chrono::milliseconds ttl, Renewal renewal);

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] std::chrono::milliseconds ttl() const noexcept { return ttl_; }
  [[nodiscard]] Time deadline() const noexcept { return deadline_; }
  // The time until the deadline; zero unless held.
  [[nodiscard]] std::chrono::milliseconds remaining(Time now) const noexcept;

  // When to call tick; nullopt if never.
  [[nodiscard]] std::optional<Time> next_tick() const noexcept;
  // Returns the actions that are due now. A renewal stays due until its request starts.
  Due tick(Time now) noexcept;

  // An extend is about to be sent; one of the three functions below will follow, and no renewal is due before that. The
  // extend may take effect from now on, so a shorter ttl counts immediately.
  void extend_begins(Time sent_at, std::chrono::milliseconds ttl) noexcept;
  void extended(Time sent_at, std::chrono::milliseconds remaining, std::chrono::milliseconds ttl) noexcept;
  // Returns true if lost() must fire.
  [[nodiscard]] bool extend_refused() noexcept;
  void extend_failed(Time now, Effect effect, double random) noexcept;
  // Schedules the next renewal a little later, after a failed request or one that could not start. random, from [0, 1),
  // adds jitter.
  void postpone_renewal(Time now, double random) noexcept;

  void release_begins() noexcept;
  void end() noexcept { state_ = State::over; }
  // The store has lost the lock. Returns true if lost() must fire.
  [[nodiscard]] bool gone() noexcept { return lose(); }
  // The client was closed. Returns true if lost() must fire.
  [[nodiscard]] bool closed() noexcept;

 private:
  bool lose() noexcept;

  State state_ = State::held;
  Renewal renewal_;
  bool extending_ = false;
  std::chrono::milliseconds ttl_;
  Time deadline_;
  Time deadline_before_extend_;
  Time renew_at_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
