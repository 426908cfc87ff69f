// The rules of holding a lock, without doing any of it: (now, event) -> what to do next.
#pragma once

#include "async/boot_clock.hpp"

#include <syncguard/error.hpp>

#include <chrono>
#include <optional>

namespace syncguard::detail {

// One lease. All times are on the BootClock.
//
//   state  event                                   next state
//   -----  --------------------------------------  -----------------------------------------------------------
//   held   tick, deadline passed                   lost: fire lost()
//          tick, renewal due                       held: send an extend
//          extended                                held: deadline = sending + remaining, next renewal from there
//          extend refused                          lost: fire lost()
//          extend begins                           held: the earlier of the deadlines before and after it
//          extend failed                           held: renewal soon again; not in doubt: the deadline before it
//          release begins                          releasing: no more renewals, lost() stays silent
//          client closed                           over: fire lost()
//   lost   release begins                          releasing
//   releasing  release failed                      releasing: release may be called again
//   any    end (released, detached, found gone, closed)  over
//
// The deadline counts from before the granting request was sent, so it passes before the store's own.
class LeaseMachine {
 public:
  using Time = async::BootClock::time_point;
  enum class Renewal { none, automatic };
  enum class State { held, releasing, lost, over };
  enum class Due { nothing, renewal, lost };

  LeaseMachine(Time sent_at, std::chrono::milliseconds remaining, std::chrono::milliseconds ttl, Renewal renewal);

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] std::chrono::milliseconds ttl() const noexcept { return ttl_; }
  [[nodiscard]] Time deadline() const noexcept { return deadline_; }
  // What is left until the deadline; zero unless held.
  [[nodiscard]] std::chrono::milliseconds remaining(Time now) const noexcept;

  // When tick has something to do; nothing if never.
  [[nodiscard]] std::optional<Time> next_tick() const noexcept;
  // What is due now. A renewal stays due until its request begins.
  Due tick(Time now) noexcept;

  // An extend is about to be sent; one of the three below will follow, and no renewal is due before. From now on it may
  // have taken effect, so that a shorter ttl counts at once.
  void extend_begins(Time sent_at, std::chrono::milliseconds ttl) noexcept;
  void extended(Time sent_at, std::chrono::milliseconds remaining, std::chrono::milliseconds ttl) noexcept;
  // True if lost() must fire.
  [[nodiscard]] bool extend_refused() noexcept;
  void extend_failed(Time now, Effect effect, double random) noexcept;
  // The next renewal comes a little later, also where its request could not even begin. random, from [0, 1), spreads
  // it.
  void put_renewal_off(Time now, double random) noexcept;

  void release_begins() noexcept;
  void end() noexcept { state_ = State::over; }
  // The client was closed. True if lost() must fire.
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

}  // namespace syncguard::detail
