// Locks in PostgreSQL 13 and newer, shared with every process that uses SyncGuard, whatever its language.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/export.hpp>
#include <syncguard/log.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace syncguard {

struct PostgresOptions {
  // Whatever libpq accepts: a URL or keywords and values; its environment variables, services and password files count.
  std::string connection{};
  // Tables, optionally with their schema: identifiers of letters, digits and underscores, at most 51 bytes.
  std::string table = "syncguard_locks";
  std::string fence_table = "syncguard_fence_counters";
  // How many connections may be open at once, besides the one that listens.
  std::size_t pool = 10;
  // Off for poolers that cannot keep prepared statements.
  bool prepare = true;
  // Where to listen for wake-ups if not where everything else goes: LISTEN does not work through a pooler of
  // transactions. "off" for polling alone.
  std::string listen_url{};
  std::chrono::milliseconds connect_timeout{5000};
  // Of one operation, connecting included, unless the client's options say otherwise.
  std::chrono::milliseconds operation_timeout{2000};
  // Lets is_locked remove locks that expired more than two seconds ago, at most once a second.
  bool cleanup_in_is_locked = false;
};

// By URL: "postgres://user:password@host:port/database" or "postgresql://..."; options table, fence_table, pool,
// prepare, listen_url, connect_timeout, operation_timeout, cleanup_in_is_locked; all others are libpq's.
//
// Connects on demand. The server's clock decides about expiry. One network round trip per operation. The tables must be
// there: setup_postgres_schema, or the command `syncguard setup`. Throws LockError(invalid_argument) for options that
// make no sense.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_postgres_backend(PostgresOptions options, Log log = {});

// Creates the tables and indexes that are missing. May be run again, and by many processes at once. Blocks, at most
// connect_timeout for each host and 10 s for each lock that it has to wait for, and for as long as the server hangs.
// May throw LockError.
SYNCGUARD_EXPORT void setup_postgres_schema(const PostgresOptions& options);

// What setup_postgres_schema runs, for those who let somebody else run it.
SYNCGUARD_EXPORT std::string postgres_schema(const PostgresOptions& options);

}  // namespace syncguard
