#include "backends/postgres/server_error.hpp"

#include "core/with_cause.hpp"

namespace syncguard::postgres {
namespace {

using core::with_cause;

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

LockError server_error(std::string_view sqlstate, const std::string& words) {
  const auto is = [sqlstate](std::string_view code) { return sqlstate.starts_with(code); };
  if (is("57014")) return with_cause(ErrorCode::network_timeout, "PostgreSQL did not finish in time", words);
  if (is("55P03")) {
    return with_cause(ErrorCode::network_timeout, "others kept the key's row or advisory lock until the time-out",
                      words);
  }
  // The second is what a standby says of the queue's table, which is not replicated.
  if (is("25006") || (is("0A000") && contains(words, "recovery"))) {
    return with_cause(ErrorCode::service_unavailable, "PostgreSQL is read-only here: a standby, or set so", words);
  }
  if (is("57P") || is("08")) {
    return with_cause(ErrorCode::service_unavailable, "PostgreSQL is starting, stopping or gone", words);
  }
  if (is("40001") || is("40P01")) {
    return with_cause(ErrorCode::service_unavailable, "PostgreSQL gave this transaction up in favour of another",
                      words);
  }
  if (is("28")) return with_cause(ErrorCode::auth_failed, "PostgreSQL refused the user or the password", words);
  if (is("42501")) {
    return with_cause(ErrorCode::auth_failed,
                      "this user lacks a right that locks need: SELECT, INSERT, UPDATE and DELETE on the tables",
                      words);
  }
  if (is("42P01") || is("3F000")) {
    return with_cause(ErrorCode::invalid_argument,
                      "a table that locks need is not there: run setup_postgres_schema or `syncguard setup`", words);
  }
  if (is("42703")) {
    return with_cause(ErrorCode::invalid_argument,
                      "a table that locks need has other columns: it belongs to something else", words);
  }
  if (is("3D000")) return with_cause(ErrorCode::invalid_argument, "there is no such database", words);
  if (is("26000") || is("42P05")) {
    return with_cause(ErrorCode::invalid_argument,
                      "a pooler does not keep prepared statements: set the option prepare=false", words);
  }
  if (is("22") || is("23") || is("42")) {
    return with_cause(ErrorCode::invalid_argument, "PostgreSQL does not accept what it was asked for", words);
  }
  if (is("53"))
    return with_cause(ErrorCode::rate_limited, "PostgreSQL has no room: connections, memory or disk", words);
  return with_cause(ErrorCode::internal, "PostgreSQL failed unexpectedly; its own words are in the error's cause",
                    words);
}

// libpq gives no SQLSTATE for these, but the server's English words, or its own.
LockError connect_error(const std::string& words) {
  if (contains(words, "password authentication failed") || contains(words, "no password supplied") ||
      contains(words, "no pg_hba.conf entry") || contains(words, "rejects connection") ||
      contains(words, "is not permitted to log in") || contains(words, "authentication failed") ||
      (contains(words, "role \"") && contains(words, "does not exist"))) {
    return with_cause(ErrorCode::auth_failed, "PostgreSQL refused the user or the password", words);
  }
  if (contains(words, "certificate verify failed") || contains(words, "does not match host name") ||
      contains(words, "root certificate file") || contains(words, "certificate required")) {
    return with_cause(ErrorCode::auth_failed, "TLS with PostgreSQL failed", words);
  }
  if (contains(words, "permission denied")) {
    return with_cause(ErrorCode::auth_failed, "this user may not connect to the database", words);
  }
  if (contains(words, "too many c") || contains(words, "remaining connection slots") ||
      contains(words, "too many connections")) {
    return with_cause(ErrorCode::rate_limited, "PostgreSQL has no more connections to give", words);
  }
  if (contains(words, "database \"") && contains(words, "does not exist")) {
    return with_cause(ErrorCode::invalid_argument, "there is no such database", words);
  }
  if (contains(words, "definition of service")) {
    return with_cause(ErrorCode::invalid_argument, "libpq does not know this service", words);
  }
  if (contains(words, "invalid integer value") || contains(words, "invalid port number")) {
    return with_cause(ErrorCode::invalid_argument, "libpq does not understand the port", words);
  }
  if (contains(words, "timeout expired")) {
    return with_cause(ErrorCode::network_timeout, "PostgreSQL could not be connected to in time", words);
  }
  return with_cause(ErrorCode::service_unavailable, "PostgreSQL cannot be reached", words);
}

}  // namespace syncguard::postgres
