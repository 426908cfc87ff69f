// Shared by the tests of the PostgreSQL backend.
#pragma once

#include "servers/postgres_server.hpp"
#include "support/long_timeouts.hpp"

#include <syncguard/postgres.hpp>
#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>
#include <libpq-fe.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncguard::testing {

// Shared by all tests of a program that do not stop it, because starting a server takes long.
inline PostgresServer& shared_postgres() {
  static PostgresServer instance;
  return instance;
}

// A plain libpq connection, which can keep a transaction open.
class PostgresClient {
 public:
  explicit PostgresClient(const PostgresServer& server) : PostgresClient(server.url()) {}
  explicit PostgresClient(const std::string& url) : connection_(PQconnectdb(url.c_str()), PQfinish) {
    if (PQstatus(connection_.get()) != CONNECTION_OK) throw std::runtime_error(PQerrorMessage(connection_.get()));
  }
  std::string operator()(const std::string& sql) {
    const std::unique_ptr<PGresult, void (*)(PGresult*)> result(PQexec(connection_.get(), sql.c_str()), PQclear);
    const auto status = PQresultStatus(result.get());
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
      throw std::runtime_error(PQerrorMessage(connection_.get()));
    }
    return PQntuples(result.get()) > 0 ? PQgetvalue(result.get(), 0, 0) : "";
  }
  // The first row, and no column if there is none.
  std::vector<std::string> row(const std::string& sql, const std::vector<std::string>& values = {}) {
    std::vector<const char*> texts;
    for (const auto& value : values) texts.push_back(value.c_str());
    const std::unique_ptr<PGresult, void (*)(PGresult*)> result(
        PQexecParams(connection_.get(), sql.c_str(), static_cast<int>(texts.size()), nullptr, texts.data(), nullptr,
                     nullptr, 0),
        PQclear);
    const auto status = PQresultStatus(result.get());
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
      throw std::runtime_error(PQerrorMessage(connection_.get()));
    }
    std::vector<std::string> columns;
    for (int column = 0; PQntuples(result.get()) > 0 && column < PQnfields(result.get()); ++column) {
      columns.emplace_back(PQgetvalue(result.get(), 0, column));
    }
    return columns;
  }
  // The payloads of the notifications that have arrived since the last call.
  std::vector<std::string> notifications() {
    std::vector<std::string> payloads;
    PQconsumeInput(connection_.get());
    while (PGnotify* const notification = PQnotifies(connection_.get())) {
      payloads.emplace_back(notification->extra);
      PQfreemem(notification);
    }
    return payloads;
  }

 private:
  std::unique_ptr<PGconn, void (*)(PGconn*)> connection_;
};

// In milliseconds, as SQL.
inline const std::string server_now = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

// Each test begins with empty tables.
struct Postgres : ::testing::Test {
  Postgres() {
    server.execute(
        "DROP TABLE IF EXISTS syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters; "
        "DROP SCHEMA IF EXISTS other CASCADE");
    setup_postgres_schema({.connection = server.url()});
  }
  [[nodiscard]] Locks client(const std::string& options = "") const {
    return open_with_long_timeout(server.url("?application_name=test" + options));
  }
  // Locks "key 1", "key 2" and so on, as another client would. The first of them expires last.
  void hold_keys(int first, int last) const {
    server.execute(
        "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) "
        "SELECT 'key ' || n, 'id ' || n, 99999999999999 + (n = 1)::int, 0, '1', 'key ' || n "
        "FROM generate_series($1::int, $2::int) AS n",
        {std::to_string(first), std::to_string(last)});
  }
  // Adds an entry to the queue of a key, as another client would: behind all others, and of a waiter that is alive now.
  void add_waiter(const std::string& key, const std::string& waiter, int reservation_ms = 50) const {
    server.execute(
        "INSERT INTO syncguard_locks_waiters (key, waiter, place, reservation_ms, seen_at_ms, turn_until_ms) "
        "SELECT $1, $2, greatest(now_ms, (SELECT max(place) + 1 FROM syncguard_locks_waiters)), $3::int, "
        "now_ms, 0 FROM (SELECT " +
            server_now + " AS now_ms) AS moment",
        {key, waiter, std::to_string(reservation_ms)});
  }
  // The same for many waiters, each with the number n in the names of its key and itself. By default they have long
  // been dead.
  void add_waiters(const std::string& key, const std::string& waiter, int count,
                   const std::string& seen_at_ms = "1") const {
    server.execute(
        "INSERT INTO syncguard_locks_waiters (key, waiter, place, reservation_ms, seen_at_ms, turn_until_ms) "
        "SELECT replace($1, 'n', n::text), replace($2, 'n', n::text), n, 50, " +
            seen_at_ms + ", 0 FROM generate_series(1, $3::int) AS n",
        {key, waiter, std::to_string(count)});
  }
  // How many connections of client() match a condition on pg_stat_activity.
  [[nodiscard]] int connections(const std::string& condition = "true") const {
    return std::stoi(
        server.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'test' AND " + condition));
  }

  PostgresServer& server = shared_postgres();
};

}  // namespace syncguard::testing
