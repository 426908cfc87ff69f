/// \file
/// Events for metrics and traces. Off by default. Events go through a bounded queue to a dedicated thread, so a slow or
/// throwing callback cannot delay or fail an operation.
#pragma once

#include <syncguard/backend_fwd.hpp>
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
inline namespace v0_1 {

/// The operations of a backend, then what happens to callers and leases.
enum class EventType {
  acquire,
  release,
  extend,
  is_locked,
  lookup,
  waited,   ///< a call of acquire had to wait, and now has the lock or failed
  renewed,  ///< an automatic renewal of a lease (auto_extend) succeeded or failed
  lost,     ///< a lease was lost: it expired before it was released, or its lock is gone
  held,     ///< a lease was released, lost or detached, or its client was closed
};
/// ok: success. fail: an expected outcome of locking, with its reason. error: a LockError, with its code.
enum class EventResult { ok, fail, error };
enum class EventReason { locked, expired, not_found };

/// The names, shared by all SyncGuard libraries: "isLocked", "not-found", ... Only this one has the events of leases.
SYNCGUARD_EXPORT std::string_view to_string(EventType type) noexcept;
SYNCGUARD_EXPORT std::string_view to_string(EventResult result) noexcept;
SYNCGUARD_EXPORT std::string_view to_string(EventReason reason) noexcept;

/// One operation of a backend, or one event of a lease.
struct LockEvent {
  EventType type = EventType::acquire;
  EventResult result = EventResult::ok;
  std::optional<EventReason> reason{};
  std::optional<ErrorCode> error{};
  /// The answer of is_locked: whether the key was locked. Not set in other events, nor if is_locked failed.
  std::optional<bool> locked{};
  /// How long the operation took. waited: the whole call. renewed: the request. lost and held: how long the lease was
  /// held, counted from when its acquire was sent.
  std::chrono::nanoseconds duration{};
  /// How far this host's clock is ahead of the store's (negative: behind), if it decides about expiry. From 200 ms on,
  /// alert; from 500 ms on, locks are refused. Not set in events of leases.
  std::optional<std::chrono::milliseconds> clock_skew{};
  /// Empty if the operation has no such identifier.
  std::string key_hash;
  std::string lock_id_hash;
  /// Raw, and only if TelemetryOptions::include_raw allows it. Empty if the operation has no such identifier.
  std::string key;
  std::string lock_id;
  /// How many events were dropped, because the queue was full, since the last delivered one.
  std::uint64_t dropped_before = 0;
};

/// Whether events may carry raw identifiers: always, never, or as decided by a predicate, which is called with them
/// filled in.
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
  /// Called on a dedicated thread, one event at a time. Exceptions are ignored. Must not close the client, which would
  /// wait for it. Closing waits for queued events, at most for dispose_timeout; the remaining ones are then dropped. A
  /// running call continues, so the objects it uses must outlive it.
  std::function<void(const LockEvent&)> on_event{};
  /// Also called on that thread. A predicate that throws means no.
  IncludeRaw include_raw{};
  /// Keys that contain one of these, in upper or lower case, are never included raw. Neither are the lock ids of such
  /// keys, beside the key or in events without one (release, extend, lookup by id), if the lock was acquired through
  /// this backend or found by the lookup. For other lock ids the key is unknown, and only include_raw decides.
  std::vector<std::string> deny_list = {"token",   "secret",  "password",   "passwd", "apikey",
                                        "api_key", "api-key", "credential", "private"};
  std::size_t queue_capacity = 4096;
  /// Like on_event, for events of leases: waited, renewed, lost and held. At least one of the two must be set.
  std::function<void(const LockEvent&)> on_lease_event{};
};

/// Wraps a backend so that it reports one event per operation. Leases obtained through it report through it, too.
/// Events of leases are reported only if the client uses the returned backend directly.
SYNCGUARD_EXPORT std::unique_ptr<Backend> with_telemetry(std::unique_ptr<Backend> backend, TelemetryOptions options);

}  // namespace v0_1
}  // namespace syncguard
