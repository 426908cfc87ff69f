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
  /// Used without an emulator: Firestore over TLS, with credentials.
  std::string endpoint = "firestore.googleapis.com";
  /// The contents of a credentials file (JSON), for a process that uses several accounts or has no file. If empty:
  /// Google's default credentials (the file named by GOOGLE_APPLICATION_CREDENTIALS, those of the gcloud command, those
  /// of the machine). The type is service_account, authorized_user, external_account or impersonated_service_account.
  /// A secret: there is no URL option for it, and it is never part of a message. Not used with an emulator.
  std::string credentials{};
  /// Must repeat endpoint (or its host) if it is not a host of googleapis.com, because it receives a Google access
  /// token.
  std::string allow_endpoint{};
  /// Timeout of one operation, including connecting, unless the client's options set another. Default: 5 s.
  std::optional<std::chrono::milliseconds> operation_timeout{};
  /// How much longer an operation may take until Firestore has replied to this client for the first time: finding
  /// credentials, fetching a first token, TLS, or an emulator that is still starting. Default: 10 s if
  /// operation_timeout has its default, otherwise zero.
  std::optional<std::chrono::milliseconds> connect_timeout{};
  FenceSource fences = FenceSource::clock;
  /// Lets is_locked remove locks that expired more than two seconds ago, at most once a second, while this host's clock
  /// is reliable, see below.
  bool cleanup_in_is_locked = false;
  /// This host's clock, which decides about expiry. If unset: the system clock. Any thread may call it. Must not throw.
  std::function<Timestamp()> clock{};
};

/// By URL: "firestore://PROJECT/DATABASE", "firestore://PROJECT", or "firestore:" with the environment's project;
/// options collection, fence_collection, emulator, endpoint, allow_endpoint, operation_timeout, connect_timeout,
/// fences (clock, counter), cleanup_in_is_locked.
///
/// Connects on demand. The hosts' clocks decide about expiry, so they must be synchronized; Admin::clock_skew returns
/// the offset of this one. From 200 ms on, a warning is logged. While it may be 500 ms or more, as far as Firestore's
/// replies tell, no lock is granted, extended or cleaned up: LockError(service_unavailable). Throws
/// LockError(invalid_argument) for invalid options.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_firestore_backend(FirestoreOptions options, Log log = {});

}  // namespace v0_1
}  // namespace syncguard
