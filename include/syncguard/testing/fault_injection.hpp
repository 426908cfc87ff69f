// A backend that misbehaves on demand, for tests of what happens then.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/export.hpp>

#include <chrono>
#include <cstddef>
#include <memory>

namespace syncguard::testing {

enum class Operation { acquire, release, extend, is_locked, lookup, join, leave, retract };

// Holds requests back until it is opened.
class SYNCGUARD_EXPORT Gate {
 public:
  Gate();
  void open();

  // Not for users.
  struct State;
  [[nodiscard]] const std::shared_ptr<State>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// What happens to one call. Think of a network between the client and the store.
class SYNCGUARD_EXPORT Fault {
 public:
  // The request never arrives; the caller sees this error.
  static Fault fail(ErrorCode code);
  // The request takes effect; the caller sees this error, in doubt, instead of the reply.
  static Fault lose_reply(ErrorCode code = ErrorCode::network_timeout);
  // The request is under way for so long. If the caller gives up meanwhile, it arrives all the same.
  static Fault delay(std::chrono::milliseconds duration);
  // The request is under way until the gate opens, likewise.
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

// What a test holds to steer a faulty backend. Thread-safe; copies share everything.
class SYNCGUARD_EXPORT FaultControl {
 public:
  FaultControl();

  // Applies to the next call of this operation that has no fault yet.
  void next(Operation operation, const Fault& fault, int times = 1);
  // Applies to all calls of this operation that have no fault of their own, until cleared.
  void always(Operation operation, const Fault& fault);
  void clear(Operation operation);

  // How many calls of this operation have begun.
  [[nodiscard]] std::size_t calls(Operation operation) const;
  // Waits until so many have; false if that took longer than the limit.
  [[nodiscard]] bool wait_for_calls(Operation operation, std::size_t count,
                                    std::chrono::milliseconds limit = std::chrono::seconds(10)) const;

  // Not for users.
  struct State;
  [[nodiscard]] const std::shared_ptr<State>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Wraps a backend. Keeps its promise that no request of a lock id overtakes an unanswered acquire of the same.
SYNCGUARD_EXPORT std::unique_ptr<Backend> with_faults(std::unique_ptr<Backend> backend, const FaultControl& control);

}  // namespace syncguard::testing
