/// \file
/// A backend wrapper that injects faults, for tests of programs that use locks. Link SyncGuard::testing.
#pragma once

#include <syncguard/backend_fwd.hpp>
#include <syncguard/error.hpp>

#include <chrono>
#include <cstddef>
#include <memory>

namespace syncguard::testing {
inline namespace v0_1 {

/// The operations of a backend that can have faults. lookup is both lookups, join is also WaitTicket::rejoin, leave is
/// WaitTicket::leave. The others (diagnose, setup, clean_up, list, break_lock, raise_fence and close) have none.
enum class Operation { acquire, release, extend, is_locked, lookup, join, leave, retract, inspect };

/// Holds requests until it is opened; from then on, requests pass. Thread-safe; copies share everything.
class Gate {
 public:
  Gate();
  void open();

  /// Not for users.
  struct State;
  [[nodiscard]] const std::shared_ptr<State>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// What happens to one call, as if there were a network between the client and the store.
class Fault {
 public:
  /// The request never arrives; the caller gets this error.
  static Fault fail(ErrorCode code);
  /// The request takes effect; the caller gets this error, in doubt, instead of the reply.
  static Fault lose_reply(ErrorCode code = ErrorCode::network_timeout);
  /// The request is in flight for this long. It still arrives if the caller gives up in the meantime.
  static Fault delay(std::chrono::milliseconds duration);
  /// The same, but until the gate opens.
  static Fault hold(const Gate& gate);

 private:
  friend class FaultyBackend;
  enum class Kind { fail, lose_reply, delay, hold };
  explicit Fault(Kind kind) : kind_(kind) {}

  Kind kind_;
  ErrorCode code_ = ErrorCode::internal;
  std::chrono::milliseconds duration_{0};
  std::shared_ptr<Gate::State> gate_;
};

/// Controls a faulty backend. Thread-safe; copies share everything.
class FaultControl {
 public:
  FaultControl();

  /// Queues a fault for this operation, `times` times. Each call takes the oldest queued fault, so that faults apply in
  /// the order in which they were queued. Nothing happens if times is 0 or negative.
  void next(Operation operation, const Fault& fault, int times = 1);
  /// Applies to every call of this operation that finds no queued fault, until clear(). Replaces an earlier fault that
  /// was set this way.
  void always(Operation operation, const Fault& fault);
  /// Removes the queued faults of this operation, and the one of always(), from later calls. A call that already has
  /// its fault keeps it: a held request stays held until its gate opens.
  void clear(Operation operation);

  /// How many calls of this operation have started, with or without a fault. A call that waits for a pending acquire,
  /// see with_faults, has not started.
  [[nodiscard]] std::size_t calls(Operation operation) const;
  /// Waits until count calls have started; returns false if that takes longer than limit.
  [[nodiscard]] bool wait_for_calls(Operation operation, std::size_t count,
                                    std::chrono::milliseconds limit = std::chrono::seconds(10)) const;

  /// Not for users.
  struct State;
  [[nodiscard]] const std::shared_ptr<State>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// Wraps a backend, so that control decides what happens to its requests. Throws LockError(invalid_argument) if backend
/// is null.
///
/// As backends must, an acquire, a release or a retraction of a lock id waits until a pending acquire of that id has
/// been answered, even if the caller of the latter gave up. Other requests with that id (extend, lookup) do not wait.
///
/// Closing the client opens every gate that holds a request, or that would hold one of the requests that follow, so
/// that closing does not wait for the test.
std::unique_ptr<Backend> with_faults(std::unique_ptr<Backend> backend, const FaultControl& control);

}  // namespace v0_1
}  // namespace syncguard::testing
