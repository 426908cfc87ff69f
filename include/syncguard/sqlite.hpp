// The embedded backend: locks between all processes of one host, in a file, without a server.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/export.hpp>
#include <syncguard/log.hpp>

#include <filesystem>
#include <memory>

namespace syncguard {

struct SqliteOptions {
  // Made on first use, with mode 0600, and its folder with 0700 if that is missing. Not on a network file system:
  // SQLite's locks do not hold there. An empty path is LockError(invalid_argument).
  std::filesystem::path path{};
  // Lets is_locked remove locks that expired more than two seconds ago, at most once a second.
  bool cleanup_in_is_locked = false;
};

// By URL: "sqlite:PATH", or "sqlite:" for default_sqlite_path(); option cleanup_in_is_locked.
//
// The host's clock decides about expiry. Every change is on the disk before it is reported (WAL, synchronous=FULL), so
// that fences survive a power cut. A process that is killed at any instant blocks nobody. While the disk hangs, the
// blocking call that is using it waits for it, whatever its time limits; all others end by theirs.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_sqlite_backend(SqliteOptions options, Log log = {});

// $XDG_STATE_HOME/syncguard/locks.db, or ~/.local/state/syncguard/locks.db. Throws LockError(invalid_argument) where
// the environment names neither.
SYNCGUARD_EXPORT std::filesystem::path default_sqlite_path();

}  // namespace syncguard
