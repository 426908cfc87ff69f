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
//          extended                                held: deadline = time of sending + remaining, next renewal later;
//                                                  the ttl of an extend in doubt caps it
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
//
// An extend in doubt may take effect late, after a longer one that was sent later. It then replaces the remaining time
// by its own ttl. How late it can be is unknown: a network or a paused server may keep it for minutes. So the shortest
// ttl in doubt caps every later deadline of the lease. A lease that renews itself is then renewed more often.
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
  // How long the lease is held at most after an extend.
  [[nodiscard]] std::chrono::milliseconds longest_hold() const noexcept;
  // Until when the store may hold the lock: later than the deadline if an extend is in doubt.
  [[nodiscard]] Time latest_expiry() const noexcept { return latest_expiry_; }
  // The time until the deadline; zero unless held.
  [[nodiscard]] std::chrono::milliseconds remaining(Time now) const noexcept;

  // When to call tick; nullopt if never.
  [[nodiscard]] std::optional<Time> next_tick() const noexcept;
  // Returns the actions that are due now. A renewal stays due until its request starts, or until it is postponed.
  Due tick(Time now) noexcept;

  // An extend is about to be sent; one of the three functions below will follow, and no renewal is due before that. The
  // extend may take effect from now on, so a shorter ttl counts immediately.
  [[nodiscard]] bool is_extending() const noexcept { return extending_; }
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
  // Sets the deadline and the next renewal.
  void hold(Time sent_at, std::chrono::milliseconds remaining) noexcept;

  State state_ = State::held;
  Renewal renewal_;
  bool extending_ = false;
  std::chrono::milliseconds ttl_;
  std::chrono::milliseconds extending_ttl_{};
  std::chrono::milliseconds shortest_in_doubt_ = std::chrono::milliseconds::max();
  Time deadline_;
  Time latest_expiry_;
  Time deadline_before_extend_;
  Time renew_at_;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
