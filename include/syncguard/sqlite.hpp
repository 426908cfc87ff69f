/// \file
/// The embedded backend: locks between the processes of one host, in a file, without a server.
#pragma once

#include <syncguard/backend_fwd.hpp>
#include <syncguard/error.hpp>
#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/log.hpp>

#include <filesystem>
#include <memory>

namespace syncguard {
inline namespace v0_1 {

struct SqliteOptions {
  /// Created on first use with mode 0600, and its folder with 0700 if it is missing. Must not be on a network file
  /// system, because SQLite's locks do not work there. An empty path throws LockError(invalid_argument).
  std::filesystem::path path{};
  FenceSource fences = FenceSource::clock;
  /// Lets is_locked remove locks that expired more than two seconds ago, at most once a second.
  bool cleanup_in_is_locked = false;
};

/// By URL: "sqlite:PATH", or "sqlite:" for default_sqlite_path(); options fences (clock, counter) and
/// cleanup_in_is_locked.
///
/// The host's clock decides about expiry. Every change is on disk before it is reported (WAL, synchronous=FULL), so
/// that fences survive a power failure. A process that is killed at any time does not block others. While the disk
/// hangs, the blocking call that is using it waits, regardless of its timeout; all other calls end at their timeouts.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_sqlite_backend(SqliteOptions options, Log log = {});

/// `$XDG_STATE_HOME/syncguard/locks.db`, or `~/.local/state/syncguard/locks.db`. Throws LockError(invalid_argument) if
/// neither XDG_STATE_HOME nor HOME is set.
SYNCGUARD_EXPORT std::filesystem::path default_sqlite_path();

}  // namespace v0_1
}  // namespace syncguard
