// What happened, for metrics and traces. Off unless asked for, and then out of the way: events go through a bounded
// queue to a thread of their own, so that a slow or throwing callback cannot delay or fail an operation.
#pragma once

#include <syncguard/error.hpp>
#include <syncguard/export.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace syncguard {

class Backend;

enum class EventType { acquire, release, extend, is_locked, lookup };
// ok: done. fail: a "no" that belongs to locking, with its reason. error: a LockError, with its code.
enum class EventResult { ok, fail, error };
enum class EventReason { locked, expired, not_found };

// The names as they are written in every SyncGuard: "isLocked", "not-found", ...
SYNCGUARD_EXPORT std::string_view to_string(EventType type) noexcept;
SYNCGUARD_EXPORT std::string_view to_string(EventResult result) noexcept;
SYNCGUARD_EXPORT std::string_view to_string(EventReason reason) noexcept;

// One operation of a backend.
struct LockEvent {
  EventType type = EventType::acquire;
  EventResult result = EventResult::ok;
  std::optional<EventReason> reason{};
  std::optional<ErrorCode> error{};
  std::chrono::nanoseconds duration{};
  // How far this host's clock is ahead of the store's (behind: negative), where it decides about expiry. From 200 ms on
  // somebody should be told, from 1000 ms on locks are refused.
  std::optional<std::chrono::milliseconds> clock_skew{};
  // Empty where the operation has no such identifier.
  std::string key_hash;
  std::string lock_id_hash;
  // Raw, and only where TelemetryOptions::include_raw allows it.
  std::string key;
  std::string lock_id;
  // Events that found the queue full since the last one that was delivered.
  std::uint64_t dropped_before = 0;
};

// Whether events may carry raw identifiers: always, never, or as a predicate says, which is asked with them filled in.
class IncludeRaw {
 public:
  IncludeRaw(bool always = false)  // NOLINT(*-explicit-*): reads as `.include_raw = true`
      : allows_([always](const LockEvent&) { return always; }) {}
  template <std::predicate<const LockEvent&> Predicate>
  IncludeRaw(Predicate predicate)  // NOLINT(*-explicit-*): reads as `.include_raw = [](const LockEvent& event) { … }`
      : allows_(std::move(predicate)) {}

  bool operator()(const LockEvent& event) const { return allows_(event); }

 private:
  std::function<bool(const LockEvent&)> allows_;
};

struct TelemetryOptions {
  // Called on a thread of telemetry's own, one event at a time. What it throws is ignored. Must not close the client,
  // which would wait for it. Closing waits for events that are queued, at most for dispose_timeout; what is left then
  // is dropped, but a call that is under way goes on, so what it refers to must live on.
  std::function<void(const LockEvent&)> on_event{};
  // Also asked on that thread. A predicate that throws means no.
  IncludeRaw include_raw{};
  // Keys that contain one of these, in any case, are never given raw, nor is the lock id beside them. Events without a
  // key (release, extend, lookup by id) never carry a raw lock id, because its key cannot be looked at.
  std::vector<std::string> deny_list = {"token",   "secret",  "password",   "passwd", "apikey",
                                        "api_key", "api-key", "credential", "private"};
  std::size_t queue_capacity = 4096;
};

// The backend, reporting one event per operation. Leases obtained through it report through it too.
SYNCGUARD_EXPORT std::unique_ptr<Backend> with_telemetry(std::unique_ptr<Backend> backend, TelemetryOptions options);

}  // namespace syncguard
