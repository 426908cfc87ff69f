// What a PostgreSQL server says about its fitness for locks.

#include "findings.hpp"
#include "postgres_fixture.hpp"
#include "servers/loopback.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct PostgresDiagnosis : Postgres {
  std::string verdict(const std::string& check, const std::string& url = "") const {
    return verdict_on(open_patiently(url.empty() ? server.url() : url).diagnose(), check);
  }
};

TEST_F(PostgresDiagnosis, AServerThatWasSetUpIsFine) {
  auto locks = client();
  expect_fine(locks, {"reachable", "latency", "clock skew", "server", "writable", "isolation", "synchronous_commit",
                      "tables", "authorised", "columns", "indexes", "queue", "listening", "TLS"});
  // The tests' server has it off, to be fast.
  EXPECT_THAT(verdict("fsync"), StartsWith("warning"));
}

TEST_F(PostgresDiagnosis, FailsWithoutTablesAndSetUpMakesThem) {
  server.execute("DROP TABLE syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters");
  EXPECT_THAT(verdict("tables"), StartsWith("failure: \"syncguard_locks\" and \"syncguard_fence_counters\" not there"));
  auto locks = client();
  EXPECT_THAT(locks.setup(), HasSubstr("were made"));
  EXPECT_THAT(locks.setup(), HasSubstr("there already"));
  EXPECT_THAT(verdict("tables"), StartsWith("fine"));
}

TEST_F(PostgresDiagnosis, FindsWhatIsWrongWithTables) {
  server.execute("DROP INDEX idx_syncguard_locks_lock_id");
  EXPECT_EQ(verdict("indexes"), "failure: missing or invalid: unique lock_id");
  EXPECT_FALSE(client().setup().empty());
  EXPECT_THAT(verdict("indexes"), StartsWith("fine"));
  server.execute("DROP INDEX idx_syncguard_locks_expires");
  EXPECT_THAT(verdict("indexes"), StartsWith("warning: missing or invalid: expires_at_ms"));
  server.execute("ALTER TABLE syncguard_fence_counters DROP CONSTRAINT syncguard_fence_counters_pkey");
  EXPECT_EQ(verdict("indexes"), "failure: missing or invalid: unique fence_key");
  server.execute("ALTER TABLE syncguard_locks ALTER COLUMN expires_at_ms TYPE integer");
  EXPECT_EQ(verdict("columns"), "failure: missing, or of another type: expires_at_ms bigint");
  server.execute("DROP TABLE syncguard_locks_waiters");
  EXPECT_THAT(verdict("queue"), StartsWith("warning: \"syncguard_locks_waiters\" not there"));
}

TEST_F(PostgresDiagnosis, FindsThatWaitersAreNotWoken) {
  EXPECT_THAT(verdict("listening", server.url("?listen_url=off")), StartsWith("warning: turned off"));
  const PgBouncer pooler(server);
  EXPECT_THAT(verdict("listening", pooler.url()), StartsWith("warning: what waiters are told does not arrive"));
}

TEST_F(PostgresDiagnosis, FindsWhatAUserMayNotDo) {
  server.execute(
      "DROP ROLE IF EXISTS limited; CREATE ROLE limited LOGIN; "
      "GRANT SELECT, INSERT ON syncguard_locks, syncguard_fence_counters TO limited");
  const auto url = server.url_of("limited");
  EXPECT_EQ(verdict("authorised", url), "failure: this user may not UPDATE, DELETE on the tables");
  EXPECT_THAT(verdict("queue", url), StartsWith("warning: this user may not"));
  server.execute("ALTER ROLE limited SET default_transaction_isolation = 'serializable'");
  EXPECT_THAT(verdict("isolation", url), StartsWith("warning: serializable"));
  server.execute("ALTER ROLE limited SET synchronous_commit = off");
  EXPECT_THAT(verdict("synchronous_commit", url), StartsWith("warning: off"));
  server.execute("ALTER ROLE limited SET default_transaction_read_only = on");
  EXPECT_THAT(verdict("writable", url), StartsWith("failure: default_transaction_read_only"));
  server.execute("DROP OWNED BY limited; DROP ROLE limited");
  EXPECT_THAT(verdict("authorised", url), StartsWith("failure"));
}

TEST_F(PostgresDiagnosis, FailsOnWhatCannotBeReached) {
  const LoopbackSocket nobody;
  EXPECT_THAT(verdict("reachable", "postgres://127.0.0.1:" + std::to_string(nobody.port()) + "/postgres"),
              StartsWith("failure"));
}

TEST_F(PostgresDiagnosis, WarnsOfARemoteHostThatNobodyVerifies) {
  // Nothing answers there, and that does not matter.
  const std::string remote = "postgres://user@192.0.2.1/db?operation_timeout=50ms";
  EXPECT_THAT(verdict("TLS", remote), StartsWith("warning: with sslmode prefer"));
  EXPECT_THAT(verdict("TLS", remote + "&sslmode=require"), StartsWith("warning: with sslmode require"));
  EXPECT_THAT(verdict("TLS", remote + "&sslmode=verify-full"), StartsWith("fine"));
  const LoopbackSocket nobody;
  const std::string list = "postgres://user@127.0.0.1:" + std::to_string(nobody.port()) + ",192.0.2.1/db";
  EXPECT_THAT(verdict("TLS", list + "?operation_timeout=50ms"), StartsWith("warning")) << "one of them is enough";
}

}  // namespace
}  // namespace syncguard::testing
