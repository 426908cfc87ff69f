// How an operation, a wait or a lease ended, for telemetry and metrics.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/telemetry.hpp>

#include <chrono>
#include <optional>
#include <string_view>
#include <variant>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

struct Outcome {
  EventResult result = EventResult::ok;
  std::optional<EventReason> reason{};
  std::optional<ErrorCode> error{};

  static Outcome failed(EventReason reason) noexcept { return {EventResult::fail, reason, std::nullopt}; }
  static Outcome failed(ErrorCode error) noexcept { return {EventResult::error, std::nullopt, error}; }
};

inline EventReason reason_of(Missing missing) noexcept {
  return missing == Missing::expired ? EventReason::expired : EventReason::not_found;
}

inline Outcome outcome_of(const AcquireReply& reply) noexcept {
  return std::holds_alternative<Granted>(reply) ? Outcome{} : Outcome::failed(EventReason::locked);
}
template <typename Success>
Outcome outcome_of(const std::variant<Success, Missing>& reply) noexcept {
  const auto* missing = std::get_if<Missing>(&reply);
  return missing == nullptr ? Outcome{} : Outcome::failed(reason_of(*missing));
}
// lookup does not distinguish expired from absent.
inline Outcome outcome_of(const std::optional<LockRecord>& record) noexcept {
  return record ? Outcome{} : Outcome::failed(EventReason::not_found);
}
inline Outcome outcome_of(bool /*is_locked*/) noexcept { return {}; }

// What happened to a waiting caller or to a lease. type is one of EventType's types of lease events.
struct LeaseEvent {
  EventType type;
  Outcome outcome;
  std::chrono::nanoseconds duration;
  std::string_view key;
  std::string_view lock_id;
};

// Implemented by a backend that wraps another one and wants these events. Not a part of Backend, because the store has
// no use for them.
class LeaseObserver {
 public:
  LeaseObserver() = default;
  LeaseObserver(const LeaseObserver&) = delete;
  LeaseObserver& operator=(const LeaseObserver&) = delete;

  // Must not block. The caller may hold the mutex of a lease.
  virtual void observe(const LeaseEvent& event) noexcept = 0;

 protected:
  ~LeaseObserver() = default;
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
