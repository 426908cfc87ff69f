/// \file
/// Locks in PostgreSQL 13 and newer, shared with processes that use SyncGuard in any language.
#pragma once

#include <syncguard/backend_fwd.hpp>
#include <syncguard/error.hpp>
#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/log.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace syncguard {
inline namespace v0_1 {

struct PostgresOptions {
  /// A libpq connection string: a URL, or keywords and values; see postgres_connection. libpq's environment variables,
  /// services and password files apply.
  std::string connection{};
  /// For passwords that expire (tokens of a cloud provider): called for each new connection, instead of using the
  /// password in connection. Runs on a thread of the library, where it may block. If it throws, that connection attempt
  /// fails with LockError(service_unavailable). By URL: password_command, which is run by `/bin/sh -c` and prints the
  /// password.
  std::function<std::string()> password_callback{};
  /// Table names, optionally with a schema: identifiers of letters, digits and underscores, at most 51 bytes.
  std::string table = "syncguard_locks";
  std::string fence_table = "syncguard_fence_counters";
  /// The maximum number of open connections, not counting the listening one.
  std::size_t pool = 10;
  /// A pooled connection is replaced after max_connection_lifetime, and closed once it has been idle for
  /// max_idle_time.
  std::chrono::milliseconds max_connection_lifetime = std::chrono::minutes(30);
  std::chrono::milliseconds max_idle_time = std::chrono::minutes(5);
  /// Where to listen for wake-ups, if not on the same connection string: LISTEN does not work through a transaction
  /// pooler. "off": waiters poll.
  std::string listen_url{};
  std::chrono::milliseconds connect_timeout{5000};
  /// Timeout of one operation, including connecting, unless the client's options set another.
  std::chrono::milliseconds operation_timeout{2000};
  FenceSource fences = FenceSource::clock;
  /// Lets is_locked remove locks that expired more than two seconds ago, at most once a second.
  bool cleanup_in_is_locked = false;
};

/// By URL: "postgres://user:password@host:port/database" or "postgresql://..."; options table, fence_table, pool,
/// max_connection_lifetime, max_idle_time, listen_url, password_command, connect_timeout, operation_timeout,
/// fences (clock, counter), cleanup_in_is_locked; all others are libpq's.
///
/// Connects on demand. The server's clock decides about expiry. One network round trip per operation. The tables must
/// exist: run setup_postgres_schema, or the command `syncguard setup`. Throws LockError(invalid_argument) for invalid
/// options.
SYNCGUARD_EXPORT std::unique_ptr<Backend> make_postgres_backend(PostgresOptions options, Log log = {});

/// A connection string of libpq's keywords and values, such as {{"host", "db"}, {"user", "app"}, {"dbname", "shop"}}. A
/// value may contain any character except a null character.
[[nodiscard]] SYNCGUARD_EXPORT std::string postgres_connection(const std::map<std::string, std::string>& parameters);

/// Creates missing tables, indexes and functions. Safe to repeat and to run concurrently. Blocks for at most
/// connect_timeout for each host and 10 s for each lock that it has to wait for, and for as long as the server hangs.
/// May throw LockError.
SYNCGUARD_EXPORT void setup_postgres_schema(const PostgresOptions& options);

/// Returns the SQL of setup_postgres_schema, to be run by another user: one transaction that creates everything, and
/// that can be repeated. A table that is named without a schema is created in the schema public.
SYNCGUARD_EXPORT std::string postgres_schema(const PostgresOptions& options);

}  // namespace v0_1
}  // namespace syncguard
