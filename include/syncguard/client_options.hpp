/// \file
/// The options of a client.
#pragma once

#include <syncguard/boot_clock.hpp>
#include <syncguard/error.hpp>
#include <syncguard/log.hpp>
#include <syncguard/metrics.hpp>
#include <syncguard/telemetry.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace syncguard {
inline namespace v0_1 {

/// The lock of a failed release. Valid during the callback.
struct ReleaseContext {
  std::string_view key;
  std::string_view lock_id;
};

/// A lease that was extended. Valid during the callback.
struct ExtendContext {
  std::string_view key;
  std::string_view lock_id;
  /// The new value of Lease::deadline().
  BootClock::time_point deadline;
};

/// The caller's functions that the client calls. They may be called from any thread; exceptions that they throw are
/// ignored.
struct Callbacks {
  /// Called when a lease could not be released by its destructor, or when the release found the lock gone: the section
  /// outlived its lock, and the error's code is lock_lost. Runs on the thread that destroys the lease if that thread
  /// waits for the release, otherwise on a thread of the library. If unset, a rate-limited warning is logged. In all
  /// cases the lock expires after its ttl.
  std::function<void(const LockError&, const ReleaseContext&)> on_release_error{};
  /// Called when a lease was extended, by a renewal or by extend(); use it to pass the deadline on to another process.
  /// Runs on the same thread as on_release_error, one call at a time: a call that blocks delays only later calls. If
  /// 4,096 calls are queued, the next one is dropped with a warning.
  std::function<void(const ExtendContext&)> on_extended{};
  /// Returns numbers from [0, 1) for the jitter of delays. If unset, or if it throws or returns NaN, the client uses
  /// its own generator.
  std::function<double()> random{};
};

struct ClientOptions {
  static constexpr std::size_t max_holder_bytes = 256;

  /// How long one operation may take, including connecting. If unset: the backend's default.
  std::optional<std::chrono::milliseconds> operation_timeout{};
  /// How long destroying a lease, or closing the client, waits for releases. Closing may take one or two seconds more
  /// if an operation does not end in time. 0: neither waits, and releases run in the background; a program that exits
  /// immediately may leave locks that expire after their ttl.
  std::chrono::milliseconds dispose_timeout{5000};
  /// Names the holder of this client's locks to people: lookup() returns it. At most max_holder_bytes of UTF-8 without
  /// control characters. If unset: HOST/PID. If empty: nothing is stored. Every program that can read the store can
  /// read it, so it must not be secret. It never appears in logs and telemetry.
  std::optional<std::string> holder{};
  Callbacks callbacks{};
  Log log{};
  /// Reports every operation; see telemetry.hpp.
  std::optional<TelemetryOptions> telemetry{};
  /// Counts every operation and lease; see metrics.hpp. Several clients can share one.
  std::optional<Metrics> metrics{};
};

}  // namespace v0_1
}  // namespace syncguard
