/// \file
/// The capabilities of a backend.
#pragma once

#include <syncguard/fence.hpp>

#include <chrono>
#include <string>

namespace syncguard {
inline namespace v0_1 {

/// The clock that decides whether a lock has expired.
enum class TimeAuthority { server, client };

struct Capabilities {
  std::string name;
  /// Whether acquire returns fences. Every backend that comes with SyncGuard does.
  bool fencing = true;
  /// How fences are made.
  FenceSource fences = FenceSource::counter;
  /// server for Redis, PostgreSQL, SQLite (the host's clock, which all its clients share) and memory; client for
  /// Firestore, where the clocks of all hosts must be synchronized, see Admin::clock_skew().
  TimeAuthority time_authority = TimeAuthority::server;
  /// How long one operation may take, including connecting, unless the client's options set another timeout.
  std::chrono::milliseconds operation_timeout{2000};
  /// Whether the store is on this host and has no server, like a file. If an operation on it times out, other processes
  /// keep the store busy; it is not unreachable.
  bool local = false;

  friend bool operator==(const Capabilities&, const Capabilities&) = default;
};

}  // namespace v0_1
}  // namespace syncguard
