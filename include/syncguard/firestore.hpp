// Locks in Google Cloud Firestore (native mode), shared with every process that uses SyncGuard, whatever its language.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/export.hpp>
#include <syncguard/log.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace syncguard {

// What to do while this host's clock differs from Firestore's by 500 ms or more. From 200 ms on there is a warning,
// from 1000 ms on (the tolerance) locks are neither granted nor extended, whatever the policy.
enum class ClockPolicy {
  warn,   // go on
  block,  // grant no locks
};

struct FirestoreOptions {
  // Without one: the environment's GOOGLE_CLOUD_PROJECT.
  std::string project{};
  std::string database = "(default)";
  // Collections, as ids or as paths such as "teams/a/locks". They must differ: nothing is ever deleted from the second.
  std::string collection = "locks";
  std::string fence_collection = "fence_counters";
  // host:port of an emulator, spoken to in plain text. Without one: the environment's FIRESTORE_EMULATOR_HOST.
  std::string emulator{};
  // Without an emulator: Firestore itself, over TLS, with Google's default credentials (the file that
  // GOOGLE_APPLICATION_CREDENTIALS names, those of the gcloud command, those of the machine).
  std::string endpoint = "firestore.googleapis.com";
  ClockPolicy clock_policy = ClockPolicy::warn;
  // Of one operation, connecting included, unless the client's options say otherwise.
  std::chrono::milliseconds operation_timeout{5000};
  // Lets is_locked remove locks that expired more than two seconds ago, at most once a second.
  bool cleanup_in_is_locked = false;
  // This host's clock, which decides about expiry. Without one: the system's. Any thread may call it.
  std::function<Timestamp()> clock{};
};

// By URL: "firestore://PROJECT/DATABASE", "firestore://PROJECT", or "firestore:" with the environment's project;
// options collection, fence_collection, emulator, endpoint, clock_policy, operation_timeout, cleanup_in_is_locked.
//
// Connects on demand. The clocks of the hosts decide about expiry, so they must be synchronised; Locks::clock_skew
// tells how far this one is off. Throws LockError(invalid_argument) for options that make no sense.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_firestore_backend(FirestoreOptions options, Log log = {});

}  // namespace syncguard
