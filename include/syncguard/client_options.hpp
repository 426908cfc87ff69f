// What is chosen once per client.
#pragma once

#include <syncguard/error.hpp>
#include <syncguard/log.hpp>
#include <syncguard/telemetry.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <string_view>

namespace syncguard {

// The lock that a release was about. Valid during the callback.
struct ReleaseContext {
  std::string_view key;
  std::string_view lock_id;
};

// A lease that an extend prolonged. Valid during the callback.
struct ExtendContext {
  std::string_view key;
  std::string_view lock_id;
  // What Lease::deadline() says from now on.
  std::chrono::nanoseconds deadline;
};

// Functions of the caller's that the client calls. All may be called from any thread; what they throw is ignored.
struct Callbacks {
  // A lease could not be released when it was destroyed, or its lock was found gone: the section outlived its lock.
  // Without it such failures are ignored, since the ttl frees the lock.
  std::function<void(const LockError&, const ReleaseContext&)> on_release_error{};
  // A lease was extended, by a renewal or by hand: for whoever passes its deadline on to another process. Called on a
  // thread that renews no leases; calls that follow close upon each other may overlap.
  std::function<void(const ExtendContext&)> on_extended{};
  // Numbers from [0, 1) for the jitter of delays. Without it: a generator of the client's own.
  std::function<double()> random{};
};

struct ClientOptions {
  // How long one operation may take, connecting included. Without it: what suits the backend.
  std::optional<std::chrono::milliseconds> operation_timeout{};
  // How long closing the client may wait for releases; it may take a second or two more where something does not let
  // go. Destroying a lease waits at most the smaller of this and operation_timeout.
  std::chrono::milliseconds dispose_timeout{5000};
  Callbacks callbacks{};
  Log log{};
  // Reports every operation; see telemetry.hpp.
  std::optional<TelemetryOptions> telemetry{};
};

}  // namespace syncguard
