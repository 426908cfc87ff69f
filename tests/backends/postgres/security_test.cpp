// Attacks by a role that may create objects in the database: they have no effect, or are reported.

#include "fixture.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/is_granted.hpp"

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Each object records that it was used and by which role, then does the same as the pg_catalog object of its name.
const char* const hostile_objects = R"(
SET ROLE attacker;
SET search_path = pg_catalog;
CREATE TABLE public.used (what text);
GRANT ALL ON public.used TO PUBLIC;
CREATE FUNCTION public.note(what text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.used VALUES (what || ' by ' || current_user); RETURN true; END $$;
DO $do$
DECLARE
  number int := 0;
  f record;
BEGIN
  FOR f IN SELECT proname, pg_get_function_identity_arguments(oid) AS arguments, prorettype::regtype AS result, proargtypes, proretset
    FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f'
      AND proname IN ('set_config', 'current_setting', 'current_schemas', 'to_regclass', 'has_table_privilege', 'hashtext',
        'pg_advisory_xact_lock', 'clock_timestamp', 'floor', 'extract', 'date_part', 'lpad', 'pg_notify', 'quote_ident',
        'format_type', 'pg_get_userbyid', 'pg_is_in_recovery', 'acldefault', 'pg_my_temp_schema', 'current_database')
  LOOP
    EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', f.proname, f.arguments, f.result,
      format('BEGIN PERFORM public.note(%L); %s pg_catalog.%I(%s); END', f.proname,
        CASE WHEN f.result = 'void'::regtype THEN 'PERFORM' ELSE 'RETURN' END, f.proname,
        (SELECT string_agg('$' || n, ', ' ORDER BY n) FROM generate_series(1, coalesce(array_length(f.proargtypes, 1), 0)) AS n)));
  END LOOP;
  FOR f IN SELECT oprname, l, r,
      CASE WHEN oprname IN ('+', '-', '*') THEN 'numeric' WHEN oprname = '||' THEN 'text' ELSE 'bool' END AS result
    FROM unnest(ARRAY['=', '<>', '<', '>', '<=', '>=', '+', '-', '*', '||']) AS oprname,
      unnest(ARRAY['smallint', 'integer', 'bigint', 'numeric', 'oid', 'text', 'name', 'double precision']) AS l,
      unnest(ARRAY['smallint', 'integer', 'bigint', 'numeric', 'oid', 'text', 'name', 'double precision']) AS r
    WHERE (l IN ('text', 'name')) = (r IN ('text', 'name')) AND (oprname NOT IN ('+', '-', '*') OR l NOT IN ('text', 'name'))
      AND (oprname <> '||' OR l IN ('text', 'name'))
  LOOP
    number := number + 1;
    EXECUTE format('CREATE FUNCTION public.operator_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', number, f.l, f.r, f.result,
      format('BEGIN PERFORM public.note(%L); RETURN $1::text::%s OPERATOR(pg_catalog.%s) $2::text::%s; END',
        format('%s %s %s', f.l, f.oprname, f.r),
        CASE WHEN f.l IN ('text', 'name') THEN 'text' ELSE 'numeric' END, f.oprname,
        CASE WHEN f.l IN ('text', 'name') THEN 'text' ELSE 'numeric' END));
    EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.operator_%s)',
      f.oprname, f.l, f.r, number);
  END LOOP;
  FOR f IN SELECT c.relname, string_agg(quote_ident(attname), ', ' ORDER BY attnum) AS columns
    FROM pg_class c JOIN pg_attribute ON attrelid = c.oid
    WHERE relnamespace = 'pg_catalog'::regnamespace AND attnum > 0 AND atttypid <> 'anyarray'::regtype
      AND relname IN ('pg_class', 'pg_namespace', 'pg_attribute', 'pg_index', 'pg_roles', 'pg_database', 'pg_trigger', 'pg_rewrite',
        'pg_settings', 'pg_locks', 'pg_stat_activity')
    GROUP BY c.relname
  LOOP
    EXECUTE format('CREATE VIEW public.%I AS SELECT %s FROM pg_catalog.%I WHERE public.note(%L)',
      f.relname, f.columns, f.relname, f.relname);
    EXECUTE format('GRANT SELECT ON public.%I TO PUBLIC', f.relname);
  END LOOP;
END $do$;
CREATE FUNCTION public.counted(bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM public.note('count'); RETURN $1 + 1; END $$;
CREATE AGGREGATE public.count(*) (SFUNC = public.counted, STYPE = bigint, INITCOND = '0');
CREATE DOMAIN public.text AS pg_catalog.text CHECK (public.note('domain text'));
CREATE TYPE public.strange AS (a integer);
CREATE FUNCTION public.strange_text(public.strange) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$ BEGIN PERFORM public.note('cast'); RETURN ''; END $$;
CREATE CAST (public.strange AS pg_catalog.text) WITH FUNCTION public.strange_text(public.strange) AS IMPLICIT;
)";

// Needs its own server, because the hostile objects are not removed.
struct PostgresSecurity : Postgres {
  PostgresSecurity() {
    server.execute(
        "CREATE ROLE attacker; GRANT CREATE ON SCHEMA public TO attacker; "
        "GRANT CREATE ON DATABASE postgres TO attacker; CREATE ROLE locker LOGIN");
    grant_tables();
  }
  void grant_tables() const {
    server.execute(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters TO "
        "locker");
  }
  // For a role with its own search path.
  [[nodiscard]] std::string url_with_path(const std::string& user, const std::string& path) const {
    return server.url_of(
        user, path.empty() ? "?application_name=test" : "?application_name=test&options=-c%20search_path%3D" + path);
  }
  [[nodiscard]] std::string used() const {
    return server.execute("SELECT string_agg(DISTINCT what, ', ') FROM public.used");
  }

  void use_everything(const std::string& user, const std::string& path) const {
    auto locks = open_with_long_timeout(url_with_path(user, path) + "&cleanup_in_is_locked=true");
    auto other = open_with_long_timeout(url_with_path(user, path));
    auto lease = locks.acquire("key");
    EXPECT_FALSE(is_granted(other.try_acquire("key")));
    EXPECT_TRUE(lease.extend(30s));
    EXPECT_TRUE(locks.is_locked("key"));
    EXPECT_TRUE(locks.lookup(lease.id()));
    EXPECT_TRUE(locks.admin().get_by_key("key"));
    EXPECT_FALSE(locks.is_locked("nothing")) << "also runs the cleanup";
    EXPECT_EQ(locks.admin().list({.prefix = "k"}).locks.size(), 1U);
    EXPECT_EQ(locks.admin().inspect("key").holders.size(), 1U);
    EXPECT_EQ(locks.admin().clean_up().count, 0U);
    EXPECT_EQ(locks.admin().raise_fence("raised", Fence(7)), Fence(7));
    const auto broken = other.acquire("broken");
    EXPECT_TRUE(locks.admin().break_lock("broken", broken.fence()));
    std::thread waiting([&] { EXPECT_TRUE(other.acquire("key", patient)); });
    EXPECT_TRUE(eventually([&] { return server.execute("SELECT 1 FROM syncguard_locks_waiters").starts_with('1'); }));
    EXPECT_TRUE(lease.release());
    waiting.join();
    EXPECT_FALSE(locks.release(lease.id()));
  }
};

TEST_F(PostgresSecurity, OperationsUseNoObjectOfAnotherRole) {
  server.execute(hostile_objects);
  for (const std::string path : {"", "public%2Cpg_catalog"}) {
    use_everything("locker", path);
    EXPECT_EQ(used(), "") << "path: " << path;
  }
}

TEST_F(PostgresSecurity, SetupAndDoctorUseNoObjectOfAnotherRole) {
  server.execute(hostile_objects);
  for (const std::string path : {"", "public%2Cpg_catalog"}) {
    const auto url = url_with_path("postgres", path);
    auto superuser = open_with_long_timeout(url);
    for (const auto& finding : superuser.admin().diagnose()) {
      EXPECT_NE(finding.verdict, Finding::Verdict::failure) << finding.check << ": " << finding.found;
    }
    EXPECT_EQ(used(), "") << "doctor, path: " << path;
    EXPECT_THAT(superuser.admin().setup(), HasSubstr("already exist"));
    server.execute("DROP TABLE syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters");
    EXPECT_THAT(superuser.admin().setup(), HasSubstr("created"));
    EXPECT_EQ(used(), "") << "setup, path: " << path;
    EXPECT_EQ(server.execute("SELECT atttypid::regtype FROM pg_attribute WHERE attrelid = 'syncguard_locks'::regclass "
                             "AND attname = 'lock_id'"),
              "text")
        << "the column must not have the type of the hostile domain";
    grant_tables();
  }
}

TEST_F(PostgresSecurity, TableInSchemaOfAnotherRoleIsNotUsed) {
  server.execute("CREATE TABLE public.used (what text); GRANT ALL ON public.used TO PUBLIC");
  // The default search path begins with a schema that has the user's name. Here, another role creates it.
  const char* const plant = R"(
    SET ROLE attacker;
    CREATE SCHEMA locker;
    GRANT ALL ON SCHEMA locker TO PUBLIC;
    CREATE TABLE locker.syncguard_locks (LIKE public.syncguard_locks INCLUDING ALL);
    CREATE FUNCTION locker.note() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN INSERT INTO public.used VALUES ('trigger by ' || current_user); RETURN NEW; END $$;
    CREATE TRIGGER note BEFORE INSERT ON locker.syncguard_locks FOR EACH ROW EXECUTE FUNCTION locker.note();
    GRANT ALL ON ALL TABLES IN SCHEMA locker TO PUBLIC)";
  server.execute("CREATE ROLE admin; ALTER TABLE syncguard_locks OWNER TO admin");
  server.execute("GRANT SELECT ON syncguard_locks TO attacker");
  server.execute(plant);
  auto locks = open_with_long_timeout(server.url_of("locker"));
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error) << "the acquire would run another role's trigger";
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), HasSubstr("several schemas"));
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "tables"), StartsWith("failure"));
  EXPECT_EQ(used(), "");
  auto qualified = open_with_long_timeout(
      server.url_of("locker", "?table=public.syncguard_locks&fence_table=public.syncguard_fence_counters"));
  EXPECT_TRUE(qualified.try_acquire("key"));
  EXPECT_EQ(used(), "");
  server.execute("DROP SCHEMA locker CASCADE");
}

TEST_F(PostgresSecurity, QueueOfAnotherRoleIsNotUsed) {
  server.execute("CREATE TABLE public.used (what text); GRANT ALL ON public.used TO PUBLIC");
  server.execute("DROP TABLE syncguard_locks_waiters");
  server.execute(R"(
    SET ROLE attacker;
    CREATE TABLE public.syncguard_locks_waiters (position bigint GENERATED ALWAYS AS IDENTITY, key text, waiter text UNIQUE,
      seen_at_ms bigint, turn_until_ms bigint);
    CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN INSERT INTO public.used VALUES ('trigger by ' || current_user); RETURN NEW; END $$;
    CREATE TRIGGER note BEFORE INSERT ON public.syncguard_locks_waiters FOR EACH ROW EXECUTE FUNCTION public.note();
    GRANT ALL ON public.syncguard_locks_waiters TO PUBLIC)");
  auto holder = open_with_long_timeout(server.url_of("locker"));
  auto waiter = open_with_long_timeout(server.url_of("locker"));
  auto lease = holder.acquire("key");
  expect_error(ErrorCode::acquisition_timeout, [&] { (void)waiter.acquire("key", {.wait = {.timeout = 300ms}}); });
  EXPECT_EQ(used(), "");
  EXPECT_THAT(verdict_on(holder.admin().diagnose(), "queue"),
              StartsWith("warning: \"public\".\"syncguard_locks_waiters\""));
}

TEST_F(PostgresSecurity, TemporaryTableIsNotUsed) {
  // With a pooler in transaction mode, another client of the same user leaves the table on a shared connection.
  const PgBouncer pooler(server);
  PostgresClient outsider(pooler.url());
  outsider("CREATE TEMPORARY TABLE syncguard_locks (LIKE public.syncguard_locks INCLUDING ALL)");
  auto locks = open_with_long_timeout(pooler.url("?listen_url=off&pool=1"));
  const auto lease = locks.acquire("key");
  EXPECT_EQ(server.execute("SELECT count(*) FROM public.syncguard_locks"), "1");
  EXPECT_EQ(outsider("SELECT count(*) FROM pg_temp.syncguard_locks"), "0")
      << "the temporary table on the shared connection must not be used";
}

TEST_F(PostgresSecurity, SetupNamesForeignOwnerOfTables) {
  for (const char* const user : {"postgres", "locker"}) {
    EXPECT_THAT(open_with_long_timeout(server.url_of(user)).admin().setup(), Not(HasSubstr("belongs to")))
        << "the tables belong to the superuser";
  }
  server.execute("ALTER TABLE syncguard_locks OWNER TO attacker");
  for (const char* const user : {"postgres", "locker"}) {
    EXPECT_THAT(open_with_long_timeout(server.url_of(user)).admin().setup(),
                HasSubstr("\"public\".\"syncguard_locks\" belongs to attacker"));
  }
  server.execute("GRANT attacker TO locker");
  EXPECT_THAT(open_with_long_timeout(server.url_of("locker")).admin().setup(), Not(HasSubstr("belongs to")))
      << "the user is a member of the owner role";
}

TEST_F(PostgresSecurity, DoctorReportsOpenSchemasAndForeignTriggers) {
  const auto verdict = [&](const char* check) { return verdict_on(client().admin().diagnose(), check); };
  EXPECT_THAT(verdict("search path"), StartsWith("warning: other roles may create objects in public"));
  server.execute("REVOKE CREATE ON SCHEMA public FROM attacker");
  EXPECT_THAT(verdict("search path"), StartsWith("fine"));
  EXPECT_THAT(verdict("triggers"), StartsWith("fine"));
  server.execute(
      "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; "
      "CREATE TRIGGER audit AFTER INSERT ON syncguard_locks FOR EACH ROW EXECUTE FUNCTION nothing(); "
      "CREATE RULE also AS ON DELETE TO syncguard_fence_counters DO ALSO NOTHING");
  EXPECT_THAT(verdict("triggers"), StartsWith("warning: \"public\".\"syncguard_locks\": trigger audit; "
                                              "\"public\".\"syncguard_fence_counters\": rule also"));
}

TEST_F(PostgresSecurity, DoctorReportsFunctionsInConstraintsDefaultsPoliciesAndIndexes) {
  server.execute(
      "CREATE FUNCTION spy(text) RETURNS boolean IMMUTABLE LANGUAGE sql AS $$ SELECT true $$; "
      "CREATE DOMAIN spying_type AS text CHECK (spy(VALUE))");
  for (const auto& [add, remove] : {std::pair{"ADD CONSTRAINT spying CHECK (spy(key))", "DROP CONSTRAINT spying"},
                                    std::pair{"ADD COLUMN spying boolean DEFAULT spy('')", "DROP COLUMN spying"},
                                    std::pair{"ADD COLUMN spying spying_type", "DROP COLUMN spying"}}) {
    server.execute("ALTER TABLE syncguard_locks " + std::string(add));
    EXPECT_THAT(verdict_on(client().admin().diagnose(), "triggers"), AllOf(StartsWith("warning"), HasSubstr("spying")));
    server.execute("ALTER TABLE syncguard_locks " + std::string(remove));
  }
  for (const auto& [add, remove] :
       {std::pair{"CREATE POLICY spying ON syncguard_locks USING (spy(key))", "DROP POLICY spying ON syncguard_locks"},
        std::pair{"CREATE INDEX spying ON syncguard_locks (spy(key))", "DROP INDEX spying"},
        std::pair{"CREATE TABLE spying () INHERITS (syncguard_locks)", "DROP TABLE spying"}}) {
    server.execute(add);
    EXPECT_THAT(verdict_on(client().admin().diagnose(), "triggers"), AllOf(StartsWith("warning"), HasSubstr("spying")));
    server.execute(remove);
  }
  EXPECT_THAT(verdict_on(client().admin().diagnose(), "triggers"), StartsWith("fine"));
}

TEST_F(PostgresSecurity, AdvisoryLockOfAnotherRoleTimesOutAndIsReported) {
  // A role that may only connect.
  server.execute("CREATE ROLE stranger LOGIN");
  auto locks = open(server.url_of("locker", "?operation_timeout=2s"));
  EXPECT_FALSE(locks.is_locked("key"));
  PostgresClient stranger(server.url_of("stranger"));
  stranger("SELECT pg_advisory_lock(hashtext('key')), pg_advisory_lock(hashtext('syncguard')), pg_backend_pid()");
  const auto pid = stranger("SELECT pg_backend_pid()");
  // The server's timeout ends shortly before the client's. On a busy machine, the client may be first.
  std::optional<LockError> error;
  for (int attempt = 0; attempt < 10 && (!error || error->in_doubt()); ++attempt) {
    error = error_of([&] { (void)locks.try_acquire("key"); });
    ASSERT_TRUE(error);
  }
  EXPECT_EQ(error->code(), ErrorCode::network_timeout);
  EXPECT_FALSE(error->in_doubt()) << "the server reported that it gave up";
  EXPECT_THAT(error->what(), HasSubstr("another session held the advisory lock of this key"));
  EXPECT_TRUE(locks.try_acquire("other key"));
  // The application's role can see which role holds the lock.
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.url_of("locker")).admin().diagnose(), "advisory locks"),
              StartsWith("warning: process " + pid + " of stranger kept 2"));
  stranger("SELECT pg_advisory_unlock_all()");
  EXPECT_THAT(verdict_on(open_with_long_timeout(server.url_of("locker")).admin().diagnose(), "advisory locks"),
              StartsWith("fine"));
}

TEST_F(PostgresSecurity, NotificationsRevealNoLockId) {
  // A role that may only connect.
  server.execute("CREATE ROLE listening LOGIN");
  PostgresClient stranger(server.url_of("listening"));
  stranger("LISTEN syncguard_wake");
  auto holder = client();
  auto waiter = client();
  auto lease = holder.acquire("key");
  std::optional<Lease> taken;
  std::thread waiting([&] { taken = waiter.acquire("key", patient); });
  EXPECT_TRUE(eventually([&] { return server.execute("SELECT 1 FROM syncguard_locks_waiters").starts_with('1'); }));
  EXPECT_EQ(server.execute("SELECT count(*) FROM syncguard_locks, syncguard_locks_waiters WHERE lock_id = waiter"),
            "0");
  const auto first_id = lease.id();
  EXPECT_TRUE(lease.release());
  waiting.join();
  std::vector<std::string> heard;
  EXPECT_TRUE(eventually([&] { return !(heard = stranger.notifications()).empty(); }));
  ASSERT_TRUE(taken);
  for (const auto& payload : heard) {
    EXPECT_THAT(payload, Not(HasSubstr(first_id.str())));
    EXPECT_THAT(payload, Not(HasSubstr(taken->id().str())));
    EXPECT_FALSE(holder.release(LockId(payload.substr(0, LockId::length)))) << "the waiter's token";
  }
  EXPECT_TRUE(taken->release());
}

// A lock id is a secret. An id that is equal only under the collation of the column must not match.
TEST_F(PostgresSecurity, IdsAreComparedByteByByte) {
  server.execute(
      "CREATE COLLATION public.caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false); "
      "ALTER TABLE syncguard_locks ALTER COLUMN lock_id TYPE text COLLATE public.caseless");
  auto locks = client();
  const LockId id(std::string(LockId::length, 'A'));
  const LockId similar(std::string(LockId::length, 'a'));
  server.execute("INSERT INTO syncguard_locks VALUES ('key', $1, 99999999999999, 1, '000000000000001', 'key')",
                 {id.str()});
  EXPECT_EQ(server.execute("SELECT count(*) FROM syncguard_locks WHERE lock_id = $1", {similar.str()}), "1");
  EXPECT_FALSE(locks.release(similar));
  EXPECT_FALSE(locks.extend(similar, 10s));
  EXPECT_FALSE(locks.lookup(similar));
  EXPECT_FALSE(locks.admin().owns(similar));
  EXPECT_TRUE(locks.admin().owns(id));
  EXPECT_TRUE(locks.extend(id, 10s));
  EXPECT_TRUE(locks.release(id));
}

}  // namespace
}  // namespace syncguard::testing
