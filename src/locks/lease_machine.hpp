// The rules of holding and releasing a lock, as a pure state machine: (now, event) -> next state, actions.
#pragma once

#include <syncguard/boot_clock.hpp>

#include <syncguard/error.hpp>
#include <syncguard/lease.hpp>
#include <syncguard/options.hpp>
#include <syncguard/requests.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

// One lease. All times are on the BootClock. The driver reports each event, and does what the returned actions say.
//
//   state      event                               next state
//   ---------  ----------------------------------  -----------------------------------------------------------
//   granted    started                             held
//   held       tick, deadline passed               lost: fire lost()
//              tick, renewal due                   held: take the slot, start a renewal; the next one soon, in
//                                                  case this one cannot start
//              tick, renewal due, slot taken       held: renewal again soon
//              extended until max_hold             held: no more renewals
//              extend begins                       held: the earlier of the deadlines before and after it
//              extended                            held: deadline = time of sending + remaining, next renewal
//                                                  later; the ttl of an extend in doubt caps it
//              extend refused, or lock gone        lost: fire lost()
//              extend failed                       held: renewal again soon; if not in doubt, the deadline
//                                                  before it
//   releasing  release failed                      releasing: release may be called again; if in doubt, a later
//                                                  one that finds no lock is no loss
//              tick, postponed release due         releasing: start a release
//   not over   release begins                      releasing: no more renewals, lost() does not fire
//              release postponed                   releasing: release in 5 ms; over if the lock has expired
//              client closed                       over: start a release; if held, fire lost()
//              client closed, destructor releases  unchanged: that release continues
//   any        released                            over
//              release refused                     over: the lock was lost, unless a release was in doubt, or the lock
//                                                  may have expired after the release began
//              end (detached, given up)            over
//
// Other events do not change the state: a late reply to an extend does not revive a lease that is lost, releasing or
// over. If a release found the lock gone, that is reported, but lost() does not fire.
//
// A lease has one slot for a request:
//
//   slot       event                               next
//   ---------  ----------------------------------  -----------------------------------------------------------
//   free       take, or tick (see above)           taken
//   taken      take                                taken: the caller must wait
//              extend begins                       extending: no renewal is due
//              free                                free
//   extending  extended, extend refused or failed  taken
//              free                                free: the extend failed in doubt, as it has no result
//
// The metrics count a lease from `started` until it is lost or over. report_end says when; report_loss, if the lock was
// lost until then. Closing is no loss to them.
//
// Renewals end at max_hold, counted like the deadline: the last one asks for less than the ttl. The ttl in the request
// counts, because the reply may say less (on Firestore, by what this clock may be behind).
//
// The deadline counts from before the granting request was sent, so it passes before the store's own.
//
// An extend in doubt may take effect late, after a longer one that was sent later. It then replaces the remaining time
// by its own ttl. How late it can be is unknown: a network or a paused server may keep it for minutes. So the shortest
// ttl in doubt caps every later deadline of the lease. A lease that renews itself is then renewed more often.
class LeaseMachine {
 public:
  using Time = BootClock::time_point;
  enum class Renewal : std::uint8_t { none, automatic };
  enum class State : std::uint8_t { granted, held, lost, releasing, over };
  enum class ReleasedBy : std::uint8_t { holder, destructor };

  // What the driver must do after an event.
  struct Actions {
    enum class Start : std::uint8_t { nothing, renewal, release };
    Start start = Start::nothing;
    bool fire_lost = false;
    bool report_loss = false;
    bool report_end = false;

    friend bool operator==(const Actions&, const Actions&) = default;
  };

  // Limits the remaining time in a reply to the requested ttl, because a broken or hostile server may send anything.
  // The functions below apply it.
  [[nodiscard]] static std::chrono::milliseconds bounded(std::chrono::milliseconds remaining,
                                                         std::chrono::milliseconds ttl) noexcept;

  LeaseMachine(Time sent_at, std::chrono::milliseconds remaining, std::chrono::milliseconds ttl, Renewal renewal,
               std::chrono::milliseconds max_hold = no_max_hold);

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] Time deadline() const noexcept { return deadline_; }
  // The time until the deadline; zero unless held.
  [[nodiscard]] std::chrono::milliseconds remaining(Time now) const noexcept;
  // Whether the store may still hold the lock: for longer than the lease is held if an extend is in doubt.
  [[nodiscard]] bool may_be_locked(Time now) const noexcept { return now < latest_expiry_; }
  // Whether lost() fires, or has fired.
  [[nodiscard]] bool fires_lost() const noexcept { return fires_lost_; }
  // Whether a release found the lock gone, although no earlier one can have removed it.
  [[nodiscard]] bool release_found_loss() const noexcept { return release_ == Release::found_loss; }
  // Whether lost() fires, or has fired, or a release found the lock gone.
  [[nodiscard]] bool lock_was_lost() const noexcept { return loss_reason_.has_value(); }
  // Why lost() fires, or why a release found the lock gone.
  [[nodiscard]] std::optional<LossReason> loss_reason() const noexcept { return loss_reason_; }

  // The lease is now watched.
  void started() noexcept { state_ = State::held; }

  // When to call tick; nullopt if never.
  [[nodiscard]] std::optional<Time> next_tick() const noexcept;
  // random is called for the jitter of a renewal only: a loss needs nothing that may fail.
  [[nodiscard]] Actions tick(Time now, double (*random)()) noexcept;

  // The slot for the lease's only request. Returns false if it is taken.
  [[nodiscard]] bool take_slot() noexcept;
  void free_slot(Time now, double (*random)()) noexcept;

  // The renewal to send now; nullopt if the lease is no longer held: the driver may have been blocked since the tick.
  struct RenewalRequest {
    std::chrono::milliseconds ttl;
    // One slow renewal must not use up the time for retries.
    std::chrono::milliseconds timeout;
  };
  [[nodiscard]] std::optional<RenewalRequest> renewal(Time now) const noexcept;

  // An extend is about to be sent; one of the next three functions, or free_slot, will follow. The extend may take
  // effect from now on, so a shorter ttl counts immediately. Requires the slot.
  void extend_begins(Time sent_at, std::chrono::milliseconds ttl) noexcept;
  // Returns whether the lease is held.
  [[nodiscard]] bool extended(Time sent_at, std::chrono::milliseconds remaining,
                              std::chrono::milliseconds ttl) noexcept;
  [[nodiscard]] Actions extend_refused(Time now, Missing reason) noexcept;
  // random, from [0, 1), adds jitter.
  void extend_failed(Time now, Effect effect, double random) noexcept;

  // Returns false if the lease is over: there is nothing to release.
  [[nodiscard]] bool release_begins(Time now, ReleasedBy by) noexcept;
  [[nodiscard]] Actions released() noexcept;
  // A request that was sent at this time found no lock.
  [[nodiscard]] Actions release_refused(Time sent_at, Missing reason) noexcept;
  void release_failed(Effect effect) noexcept;
  // How long the destructor waits before it repeats a release. Not beyond the time when the lock expires in the store.
  // failures is 1 after the first one.
  [[nodiscard]] std::chrono::nanoseconds release_delay(Time now, int failures, double random) const noexcept;
  // There is no memory for the release by the destructor. Closing must release the lock if this has not happened by
  // then.
  [[nodiscard]] Actions release_postponed(Time now) noexcept;

  [[nodiscard]] Actions end() noexcept;
  // The store has lost the lock.
  [[nodiscard]] Actions lock_is_gone() noexcept { return lose(LossReason::store_lost); }
  [[nodiscard]] Actions client_closed() noexcept;

 private:
  enum class Slot : std::uint8_t { free, taken, extending };
  enum class Release : std::uint8_t { no_result, in_doubt, succeeded, found_loss };
  enum class Disposal : std::uint8_t { none, running, postponed };

  [[nodiscard]] bool renews() const noexcept {
    return renewal_ == Renewal::automatic && slot_ != Slot::extending && !lasts_until_max_hold_;
  }
  // Whether the metrics count it.
  [[nodiscard]] bool is_counted() const noexcept;
  Actions lose(LossReason reason) noexcept;
  // Sets the deadline and the next renewal. The request asked for ttl.
  void hold(Time sent_at, std::chrono::milliseconds remaining, std::chrono::milliseconds ttl) noexcept;
  [[nodiscard]] LossReason reason_of(Time now, Missing missing) const noexcept;
  void postpone_renewal(Time now, double random) noexcept;
  // How long the lease is held at most after an extend.
  [[nodiscard]] std::chrono::milliseconds longest_hold() const noexcept;

  State state_ = State::granted;
  Slot slot_ = Slot::free;
  Release release_ = Release::no_result;
  Disposal disposal_ = Disposal::none;  // the release by the destructor
  bool fires_lost_ = false;
  bool lasts_until_max_hold_ = false;
  bool released_in_time_ = false;  // a release began while the lease was held
  std::optional<LossReason> loss_reason_{};
  Renewal renewal_;
  std::chrono::milliseconds ttl_;
  std::chrono::milliseconds extending_ttl_{};
  std::chrono::milliseconds shortest_in_doubt_ = std::chrono::milliseconds::max();
  Time deadline_;
  Time latest_expiry_;  // when the lock expires in the store, at the latest
  Time deadline_before_extend_;
  Time expiry_before_extend_;
  Time renew_at_;
  Time release_at_;  // if postponed
  Time hold_until_;  // no renewal asks for more
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
