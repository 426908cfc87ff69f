// Triggers and row-level security that discard a change without an error. The operation fails, and nothing of it stays.

#include "contract/contract.hpp"
#include "fixture.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/is_granted.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// With the functions, or with plain statements.
struct PostgresDiscardedChanges : Postgres, ::testing::WithParamInterface<bool> {
  PostgresDiscardedChanges() {
    server.execute(
        "DROP FUNCTION IF EXISTS discard, keep_old; "
        "CREATE FUNCTION discard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
        "CREATE FUNCTION keep_old() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'");
    server.execute("DO $$ BEGIN CREATE ROLE caller LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    server.execute(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters TO "
        "caller");
    if (!GetParam()) {
      server.execute("DROP FUNCTION " + server.execute("SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc "
                                                       "WHERE proname LIKE 'syncguard\\_%'"));
    }
  }
  void add_trigger(const std::string& when, const std::string& function = "discard") const {
    server.execute("CREATE TRIGGER obstacle BEFORE " + when + " FOR EACH ROW EXECUTE FUNCTION " + function + "()");
  }
  // Row-level security with a policy that allows everything, for each of these commands.
  void allow_only(const std::vector<std::string>& commands) const {
    server.execute("ALTER TABLE syncguard_locks ENABLE ROW LEVEL SECURITY");
    for (const auto& command : commands) {
      const std::string allowed = command == "INSERT" ? " WITH CHECK (true)" : " USING (true)";
      server.execute("CREATE POLICY may_" + command + " ON syncguard_locks FOR " + command + allowed);
    }
  }
  [[nodiscard]] std::string row() const {
    return server.execute("SELECT coalesce(string_agg(l::text, ' '), 'none') FROM syncguard_locks AS l");
  }
  // The operation fails because its change was discarded, and no row has changed.
  void expect_discarded(const std::function<void()>& operation) const {
    const auto before = row();
    const auto error = error_of(operation);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::internal) << error->what();
    EXPECT_FALSE(error->in_doubt());
    EXPECT_THAT(error->what(), AllOf(HasSubstr("trigger"), HasSubstr("row-level security"), HasSubstr("doctor")));
    EXPECT_EQ(row(), before);
  }
};
INSTANTIATE_TEST_SUITE_P(Statements, PostgresDiscardedChanges, ::testing::Bool(),
                         [](const auto& with) { return with.param ? "Functions" : "Plain"; });

TEST_P(PostgresDiscardedChanges, ExtendFails) {
  auto locks = client();
  const auto id = locks.acquire("key").detach();
  for (const std::string function : {"discard", "keep_old"}) {
    add_trigger("UPDATE ON syncguard_locks", function);
    expect_discarded([&] { (void)locks.extend(id, 1h); });
    server.execute("DROP TRIGGER obstacle ON syncguard_locks");
  }
  EXPECT_TRUE(locks.extend(id, 1h));
}

TEST_P(PostgresDiscardedChanges, ReleaseAndBreakFail) {
  auto locks = client();
  const auto id = locks.acquire("key").detach();
  const auto fence = locks.admin().inspect("key").holders.at(0).fence;
  add_trigger("DELETE ON syncguard_locks");
  expect_discarded([&] { (void)locks.release(id); });
  expect_discarded([&] { (void)locks.admin().break_lock("key", fence); });
  EXPECT_FALSE(locks.admin().break_lock("key", Fence(fence.value() + 1))) << "there is no such lock";
  server.execute("DROP TRIGGER obstacle ON syncguard_locks");
  EXPECT_TRUE(locks.release(id));
  EXPECT_FALSE(locks.release(id));
}

TEST_P(PostgresDiscardedChanges, AcquireFails) {
  auto locks = client();
  for (const std::string when : {"INSERT ON syncguard_locks", "INSERT ON syncguard_fence_counters"}) {
    add_trigger(when);
    expect_discarded([&] { (void)locks.try_acquire("key"); });
    server.execute("DROP TRIGGER obstacle " + when.substr(when.find("ON")));
    server.execute("DELETE FROM syncguard_fence_counters");
  }
  (void)locks.acquire("key", {.ttl = 1h}).detach();
  server.execute("UPDATE syncguard_locks SET expires_at_ms = 1");
  for (const std::string table : {"syncguard_locks", "syncguard_fence_counters"}) {
    for (const std::string function : {"discard", "keep_old"}) {
      add_trigger("UPDATE ON " + table, function);
      const auto counter = server.execute("SELECT fence FROM syncguard_fence_counters");
      expect_discarded([&] { (void)locks.try_acquire("key"); });
      EXPECT_EQ(server.execute("SELECT fence FROM syncguard_fence_counters"), counter) << "nothing half-done";
      server.execute("DROP TRIGGER obstacle ON " + table);
    }
  }
  EXPECT_TRUE(locks.try_acquire("key"));
}

TEST_P(PostgresDiscardedChanges, RepeatedAcquireFails) {
  RawBackend backend(make_postgres_backend({.connection = server.url()}));
  const auto id = LockId::generate();
  (void)granted(backend.acquire("key", id, 1h));
  add_trigger("UPDATE ON syncguard_locks");
  expect_discarded([&] { (void)backend.acquire("key", id, 1h); });
}

TEST_P(PostgresDiscardedChanges, RaisingAFenceFails) {
  auto locks = client();
  add_trigger("INSERT ON syncguard_fence_counters");
  expect_discarded([&] { (void)locks.admin().raise_fence("key", Fence(7)); });
  server.execute("DROP TRIGGER obstacle ON syncguard_fence_counters");
  EXPECT_EQ(locks.admin().raise_fence("key", Fence(7)), Fence(7));
  add_trigger("UPDATE ON syncguard_fence_counters", "keep_old");
  expect_discarded([&] { (void)locks.admin().raise_fence("key", Fence(8)); });
}

TEST_P(PostgresDiscardedChanges, PoliciesThatHideRowsFromChangesAreNoticed) {
  auto locks = open_with_long_timeout(server.url_of("caller"));
  const auto id = locks.acquire("key", {.ttl = 1h}).detach();
  const auto fence = locks.admin().inspect("key").holders.at(0).fence;
  allow_only({"SELECT", "INSERT"});
  expect_discarded([&] { (void)locks.extend(id, 1h); });
  expect_discarded([&] { (void)locks.release(id); });
  expect_discarded([&] { (void)locks.admin().break_lock("key", fence); });
  // PostgreSQL 15.20, unlike 15.18, rejects an INSERT that conflicts with a row that policies hide from UPDATE.
  bool granted = false;
  const auto error = error_of([&] { granted = is_granted(locks.try_acquire("key")); });
  EXPECT_FALSE(granted);
  if (error) {
    EXPECT_EQ(error->code(), ErrorCode::auth_failed) << error->what();
    EXPECT_THAT(error->what(), HasSubstr("row-level security"));
  }
  EXPECT_FALSE(locks.release(LockId::generate())) << "there is no such lock";
  allow_only({"UPDATE"});
  EXPECT_TRUE(locks.extend(id, 1h));
  expect_discarded([&] { (void)locks.release(id); });
  expect_discarded([&] { (void)locks.admin().break_lock("key", fence); });
  allow_only({"DELETE"});
  EXPECT_TRUE(locks.release(id));
  EXPECT_TRUE(locks.try_acquire("key"));
}

TEST_P(PostgresDiscardedChanges, DiagnosisNamesTriggersAndRowLevelSecurity) {
  auto locks = client();
  EXPECT_EQ(verdict_on(locks.admin().diagnose(), "row-level security"), "fine: off");
  add_trigger("UPDATE ON syncguard_fence_counters");
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "triggers"),
              StartsWith("warning: \"public\".\"syncguard_fence_counters\": trigger obstacle"));
  allow_only({});
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "row-level security"),
              StartsWith("warning: \"public\".\"syncguard_locks\": on: it does not apply to this user"));
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.url_of("caller")).admin().diagnose(), "row-level security"),
              StartsWith("warning: \"public\".\"syncguard_locks\": active: policies decide"));
}

}  // namespace
}  // namespace syncguard::testing
