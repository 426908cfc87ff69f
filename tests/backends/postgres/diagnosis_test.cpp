// diagnose() on PostgreSQL.

#include "fixture.hpp"
#include "servers/loopback.hpp"
#include "support/findings.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct PostgresDiagnosis : Postgres {
  std::string verdict(const std::string& check, const std::string& url = "") const {
    return verdict_on(open_with_long_timeout(url.empty() ? server.url() : url).admin().diagnose(), check);
  }
};

TEST_F(PostgresDiagnosis, PassesAfterSetup) {
  auto locks = client();
  expect_fine(locks, {"reachable", "latency", "clock skew", "server", "writable", "replication", "isolation",
                      "synchronous_commit", "tables", "authorized", "columns", "holder labels", "indexes", "queue",
                      "listening", "TLS"});
  // The server of the tests has fsync off, to be fast.
  EXPECT_THAT(verdict("fsync"), StartsWith("warning"));
}

TEST_F(PostgresDiagnosis, FailsWithoutTablesUntilSetup) {
  server.execute("DROP TABLE syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters");
  EXPECT_THAT(verdict("tables"),
              StartsWith("failure: \"syncguard_locks\" and \"syncguard_fence_counters\" do not exist"));
  auto locks = client();
  EXPECT_THAT(locks.admin().setup(), HasSubstr("created"));
  EXPECT_THAT(locks.admin().setup(), HasSubstr("already exist"));
  EXPECT_THAT(verdict("tables"), StartsWith("fine"));
}

// An administrator runs the SQL; the clients' role may create nothing, and connects afterward.
TEST_F(PostgresDiagnosis, PassesAfterSetupScriptOfAdministrator) {
  server.execute(
      "DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP ROLE IF EXISTS limited; CREATE ROLE limited LOGIN");
  PostgresClient administrator(server);
  for (const std::string options : {"", "?table=other.locks&fence_table=other.counters"}) {
    auto locks = open_with_long_timeout(server.url_of("limited", options));
    const auto script = locks.admin().setup_script();
    if (!options.empty()) administrator("CREATE SCHEMA other; GRANT USAGE ON SCHEMA other TO limited");
    for (int i = 0; i < 2; ++i) EXPECT_NO_THROW(administrator(script)) << "it can be repeated";
    administrator("GRANT USAGE ON SCHEMA public TO limited");
    const std::string schema = options.empty() ? "public" : "other";
    administrator("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + schema + " TO limited");
    expect_fine(locks, {"tables", "authorized", "columns", "holder labels", "indexes", "queue", "functions", "triggers",
                        "search path", "fences", "fence counters", "listening"});
    EXPECT_TRUE(locks.try_acquire("key"));
    EXPECT_THAT(client(options.empty() ? "" : "&" + options.substr(1)).admin().setup(), HasSubstr("nothing to do"));
  }
  administrator("DROP OWNED BY limited; DROP ROLE limited");
}

TEST_F(PostgresDiagnosis, ReportsTableProblems) {
  server.execute("DROP INDEX idx_syncguard_locks_lock_id");
  EXPECT_EQ(verdict("indexes"), "failure: missing or invalid: unique lock_id");
  EXPECT_FALSE(client().admin().setup().empty());
  EXPECT_THAT(verdict("indexes"), StartsWith("fine"));
  server.execute("DROP INDEX idx_syncguard_locks_expires");
  EXPECT_THAT(verdict("indexes"), StartsWith("warning: missing or invalid: expires_at_ms"));
  server.execute("ALTER TABLE syncguard_fence_counters DROP CONSTRAINT syncguard_fence_counters_pkey");
  EXPECT_EQ(verdict("indexes"), "failure: missing or invalid: unique fence_key");
  server.execute("ALTER TABLE syncguard_locks ALTER COLUMN expires_at_ms TYPE integer");
  EXPECT_EQ(verdict("columns"), "failure: missing, or of another type: expires_at_ms bigint");
  server.execute("DROP TABLE syncguard_locks_waiters");
  EXPECT_THAT(verdict("queue"), StartsWith("warning: \"public\".\"syncguard_locks_waiters\" does not exist"));
}

TEST_F(PostgresDiagnosis, ReportsThatWaitersAreNotWoken) {
  EXPECT_THAT(verdict("listening", server.url("?listen_url=off")), StartsWith("warning: turned off"));
  const PgBouncer pooler(server);
  EXPECT_THAT(verdict("listening", pooler.url()), StartsWith("warning: notifications do not arrive"));
}

TEST_F(PostgresDiagnosis, ReportsMissingPrivileges) {
  server.execute(
      "DROP ROLE IF EXISTS limited; CREATE ROLE limited LOGIN; "
      "GRANT SELECT, INSERT ON syncguard_locks, syncguard_fence_counters TO limited");
  const auto url = server.url_of("limited");
  EXPECT_EQ(verdict("authorized", url), "failure: this user may not UPDATE, DELETE on the tables");
  EXPECT_THAT(verdict("queue", url), StartsWith("warning: this user may not"));
  server.execute("ALTER ROLE limited SET default_transaction_isolation = 'serializable'");
  EXPECT_THAT(verdict("isolation", url), StartsWith("warning: serializable"));
  server.execute("ALTER ROLE limited SET synchronous_commit = off");
  EXPECT_THAT(verdict("synchronous_commit", url), StartsWith("warning: off"));
  server.execute("ALTER ROLE limited SET default_transaction_read_only = on");
  EXPECT_THAT(verdict("writable", url), StartsWith("failure: default_transaction_read_only"));
  server.execute("DROP OWNED BY limited; DROP ROLE limited");
  EXPECT_THAT(verdict("authorized", url), StartsWith("failure"));
}

TEST_F(PostgresDiagnosis, FailsIfUnreachable) {
  const LoopbackSocket unreachable;
  EXPECT_THAT(verdict("reachable", "postgres://127.0.0.1:" + std::to_string(unreachable.port()) + "/postgres"),
              StartsWith("failure"));
}

TEST_F(PostgresDiagnosis, ChecksTlsOfConnectionInsteadOfUrl) {
  EXPECT_THAT(verdict("TLS"), StartsWith("fine: not needed"));
  EXPECT_THAT(verdict("TLS", server.unix_url()), StartsWith("fine: not needed"));
  // A host name or a service does not prove that a host is local. These hosts do not answer.
  const TemporaryFolder folder;
  const auto file = folder.path() / "services";
  std::ofstream(file) << "[remote]\nhost=192.0.2.1\n[local]\nhost=db.example.com\nhostaddr=127.0.0.1\nport="
                      << server.port() << "\nuser=postgres\ndbname=postgres\n";
  setenv("PGSERVICEFILE", file.c_str(), 1);
  for (const std::string url : {"postgres://?service=remote&operation_timeout=50ms",
                                "postgres://user@127.evil.invalid/db?operation_timeout=50ms"}) {
    EXPECT_EQ(verdict("TLS", url), "") << url;
  }
  EXPECT_THAT(verdict("TLS", "postgres://?service=local"), StartsWith("fine: not needed"));
  unsetenv("PGSERVICEFILE");
  EXPECT_EQ(verdict("TLS of listen_url"), "");
  const auto listening_elsewhere =
      "?listen_url=postgres%3A%2F%2Fpostgres%40127.0.0.1%3A" + std::to_string(server.port()) + "%2Fpostgres";
  EXPECT_THAT(verdict("TLS of listen_url", server.url(listening_elsewhere)), StartsWith("fine"));
}

}  // namespace
}  // namespace syncguard::testing
