/// \file
/// Locks in Google Cloud Firestore (native mode), shared with processes that use SyncGuard in any language.
#pragma once

#include <syncguard/backend_fwd.hpp>
#include <syncguard/error.hpp>
#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/log.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace syncguard {
inline namespace v0_1 {

/// What to do while this host's clock differs from Firestore's by 500 ms or more. From 200 ms on, a warning is logged.
/// From 1000 ms on (the tolerance), locks are neither granted nor extended under any policy.
enum class ClockPolicy {
  warn,   ///< continue
  block,  ///< grant no locks
};

struct FirestoreOptions {
  /// If empty: the environment variable GOOGLE_CLOUD_PROJECT.
  std::string project{};
  std::string database = "(default)";
  /// Collections, as ids or as paths such as "teams/a/locks". They must differ: documents in fence_collection are never
  /// deleted.
  std::string collection = "locks";
  std::string fence_collection = "fence_counters";
  /// host:port of an emulator, used in plain text and without credentials. If empty: the environment variable
  /// FIRESTORE_EMULATOR_HOST, with a warning.
  std::string emulator{};
  /// Used without an emulator: Firestore over TLS, with Google's default credentials (the file named by
  /// GOOGLE_APPLICATION_CREDENTIALS, those of the gcloud command, those of the machine).
  std::string endpoint = "firestore.googleapis.com";
  /// Must repeat endpoint (or its host) if it is not a host of googleapis.com, because it receives a Google access
  /// token.
  std::string allow_endpoint{};
  ClockPolicy clock_policy = ClockPolicy::warn;
  /// Timeout of one operation, including connecting, unless the client's options set another. Default: 5 s.
  std::optional<std::chrono::milliseconds> operation_timeout{};
  /// How much longer an operation may take until Firestore has replied to this client for the first time: finding
  /// credentials, fetching a first token, TLS, or an emulator that is still starting. Default: 10 s if
  /// operation_timeout has its default, otherwise zero.
  std::optional<std::chrono::milliseconds> connect_timeout{};
  FenceSource fences = FenceSource::clock;
  /// Lets is_locked remove locks that expired more than two seconds ago, at most once a second.
  bool cleanup_in_is_locked = false;
  /// This host's clock, which decides about expiry. If unset: the system clock. Any thread may call it.
  std::function<Timestamp()> clock{};
};

/// By URL: "firestore://PROJECT/DATABASE", "firestore://PROJECT", or "firestore:" with the environment's project;
/// options collection, fence_collection, emulator, endpoint, allow_endpoint, clock_policy, operation_timeout,
/// connect_timeout, fences (clock, counter), cleanup_in_is_locked.
///
/// Connects on demand. The hosts' clocks decide about expiry, so they must be synchronized; Locks::clock_skew returns
/// the offset of this one. Throws LockError(invalid_argument) for invalid options.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_firestore_backend(FirestoreOptions options, Log log = {});

}  // namespace v0_1
}  // namespace syncguard
