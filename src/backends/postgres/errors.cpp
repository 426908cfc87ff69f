#include "backends/postgres/errors.hpp"

#include "core/causes.hpp"

namespace syncguard::postgres {
namespace {

using core::with_cause;

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

constexpr const char* discarded =
    "PostgreSQL discarded a change without an error: a trigger, a rule or row-level security on the tables prevents "
    "it; `syncguard doctor` names them";

}  // namespace

LockError change_discarded() { return LockError(ErrorCode::internal, discarded); }

LockError server_error(std::string_view sqlstate, const std::string& server_message, const std::string& where) {
  const auto is = [sqlstate](std::string_view code) { return sqlstate.starts_with(code); };
  // Raised by our functions, and by our plain statements (sql/locks.sql).
  if (is("SG002") || (is("22P02") && contains(server_message, "syncguard: change discarded"))) {
    return with_cause(ErrorCode::internal, discarded, server_message);
  }
  if (is("57014")) return with_cause(ErrorCode::network_timeout, "PostgreSQL did not finish in time", server_message);
  if (is("55P03")) {
    const bool is_advisory = contains(where, "pg_advisory_xact_lock");
    return with_cause(ErrorCode::network_timeout,
                      is_advisory ? "another session held the advisory lock of this key until the timeout; "
                                    "`syncguard doctor` names sessions that keep such locks"
                                  : "another transaction held a row lock on this key until the timeout",
                      server_message);
  }
  // 0A000 is the error of a standby for the queue table, which is not replicated, and of a statement whose tables were
  // changed. The code is the same in every language of the server.
  if (is("25006") || is("0A000")) {
    return with_cause(ErrorCode::service_unavailable,
                      "PostgreSQL is read-only here (a standby, or configured so), or its tables were changed",
                      server_message);
  }
  if (is("22P05") || is("22021")) {
    return with_cause(ErrorCode::invalid_argument,
                      "the database's encoding cannot store this key: use a database whose encoding is UTF8",
                      server_message);
  }
  if (is("57P") || is("08")) {
    return with_cause(ErrorCode::service_unavailable, "PostgreSQL is starting, stopping or unreachable",
                      server_message);
  }
  if (is("40001") || is("40P01")) {
    return with_cause(ErrorCode::service_unavailable,
                      "PostgreSQL aborted this transaction because of a conflict with another one", server_message);
  }
  if (is("28"))
    return with_cause(ErrorCode::auth_failed, "PostgreSQL rejected the user or the password", server_message);
  if (is("42501")) {
    return with_cause(ErrorCode::auth_failed,
                      "this user lacks a privilege that locks need: SELECT, INSERT, UPDATE and DELETE on the tables; "
                      "or row-level security forbids it",
                      server_message);
  }
  if (is("42P01") || is("3F000")) {
    return with_cause(ErrorCode::invalid_argument,
                      "a table that locks need does not exist: run setup_postgres_schema or `syncguard setup`",
                      server_message);
  }
  if (is("42703")) {
    return with_cause(ErrorCode::invalid_argument,
                      "a table that locks need has different columns: it belongs to another program", server_message);
  }
  if (is("3D000")) return with_cause(ErrorCode::invalid_argument, "the database does not exist", server_message);
  if (is("22") || is("23") || is("42")) {
    return with_cause(ErrorCode::invalid_argument, "PostgreSQL rejected the request as invalid", server_message);
  }
  if (is("53"))
    return with_cause(ErrorCode::rate_limited, "PostgreSQL has run out of connections, memory or disk space",
                      server_message);
  // For example when the NOTIFY queue is full at a commit.
  if (is("54000")) return with_cause(ErrorCode::rate_limited, "a limit of PostgreSQL is reached", server_message);
  return with_cause(ErrorCode::internal, "PostgreSQL failed unexpectedly; its message is in the error's cause",
                    server_message);
}

// libpq provides no SQLSTATE for these errors, only English messages of the server or of libpq itself.
LockError connect_error(const std::string& libpq_message) {
  if (contains(libpq_message, "password authentication failed") || contains(libpq_message, "no password supplied") ||
      contains(libpq_message, "no pg_hba.conf entry") || contains(libpq_message, "rejects connection") ||
      contains(libpq_message, "is not permitted to log in") || contains(libpq_message, "authentication failed") ||
      (contains(libpq_message, "role \"") && contains(libpq_message, "does not exist"))) {
    return with_cause(ErrorCode::auth_failed, "PostgreSQL rejected the user or the password", libpq_message);
  }
  if (contains(libpq_message, "certificate verify failed") || contains(libpq_message, "does not match host name") ||
      contains(libpq_message, "root certificate file") || contains(libpq_message, "certificate required")) {
    return with_cause(ErrorCode::auth_failed, "TLS with PostgreSQL failed", libpq_message);
  }
  if (contains(libpq_message, "permission denied")) {
    return with_cause(ErrorCode::auth_failed, "this user may not connect to the database", libpq_message);
  }
  if (contains(libpq_message, "too many c") || contains(libpq_message, "remaining connection slots") ||
      contains(libpq_message, "too many connections") || contains(libpq_message, "no more connections allowed")) {
    return with_cause(ErrorCode::rate_limited, "PostgreSQL has no free connections", libpq_message);
  }
  if (contains(libpq_message, "database \"") && contains(libpq_message, "does not exist")) {
    return with_cause(ErrorCode::invalid_argument, "the database does not exist", libpq_message);
  }
  if (contains(libpq_message, "definition of service")) {
    return with_cause(ErrorCode::invalid_argument, "unknown libpq service", libpq_message);
  }
  if (contains(libpq_message, "invalid integer value") || contains(libpq_message, "invalid port number") ||
      contains(libpq_message, "could not match")) {
    return with_cause(ErrorCode::invalid_argument,
                      "invalid port, or the number of ports differs from the number of hosts", libpq_message);
  }
  if (contains(libpq_message, "server does not support SSL") ||
      contains(libpq_message, "SSL is not enabled on the server")) {
    return with_cause(ErrorCode::invalid_argument, "sslmode requires TLS, but the server does not support it",
                      libpq_message);
  }
  if (contains(libpq_message, "sslmode value") || contains(libpq_message, "invalid ssl")) {
    return with_cause(ErrorCode::invalid_argument, "libpq does not support this sslmode", libpq_message);
  }
  if (contains(libpq_message, "invalid target_session_attrs") || contains(libpq_message, "invalid channel_binding") ||
      contains(libpq_message, "invalid gssencmode")) {
    return with_cause(ErrorCode::invalid_argument, "libpq rejects one of the options in the URL", libpq_message);
  }
  if (contains(libpq_message, "timeout expired")) {
    return with_cause(ErrorCode::network_timeout, "timed out connecting to PostgreSQL", libpq_message);
  }
  return with_cause(ErrorCode::service_unavailable, "PostgreSQL cannot be reached", libpq_message);
}

}  // namespace syncguard::postgres
