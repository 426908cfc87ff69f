// What the tests of the PostgreSQL backend share.
#pragma once

#include "patience.hpp"
#include "servers/postgres_server.hpp"

#include <syncguard/postgres.hpp>
#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>
#include <libpq-fe.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace syncguard::testing {

// One for all tests of a program that do not break it: starting it takes long.
inline PostgresServer& shared_postgres() {
  static PostgresServer instance;
  return instance;
}

// A connection from outside, which can keep a transaction open.
class PostgresOutsider {
 public:
  explicit PostgresOutsider(const PostgresServer& server) : connection_(PQconnectdb(server.url().c_str()), PQfinish) {
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

 private:
  std::unique_ptr<PGconn, void (*)(PGconn*)> connection_;
};

// Tables that are empty when a test begins.
struct Postgres : ::testing::Test {
  Postgres() {
    server.execute(
        "DROP TABLE IF EXISTS syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters; "
        "DROP SCHEMA IF EXISTS other CASCADE");
    setup_postgres_schema({.connection = server.url()});
  }
  [[nodiscard]] Locks client(const std::string& options = "") const {
    return open_patiently(server.url("?application_name=test" + options));
  }
  // How many connections of clients there are, in some state.
  [[nodiscard]] int connections(const std::string& condition = "true") const {
    return std::stoi(
        server.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'test' AND " + condition));
  }

  PostgresServer& server = shared_postgres();
};

}  // namespace syncguard::testing
