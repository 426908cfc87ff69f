// The functions that setup installs: when they are called, when plain statements serve instead, what they make durable,
// and how fences grow.

#include "fixture.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/is_granted.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string in_fences = "floor(extract(epoch FROM clock_timestamp()) * 10000)::bigint";

struct PostgresFunctions : Postgres {
  PostgresFunctions() {
    server.execute("ALTER DATABASE postgres SET track_functions = 'all'");
    server.execute("SELECT pg_stat_reset()");
    server.execute("DO $$ BEGIN CREATE ROLE caller LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    server.execute(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters TO "
        "caller");
  }
  // With all arguments, as DROP FUNCTION and GRANT want them.
  [[nodiscard]] std::string functions() const {
    return server.execute(
        "SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc WHERE proname LIKE 'syncguard\\_%\\_v5\\_%'");
  }
  void drop_functions() const { server.execute("DROP FUNCTION " + functions()); }
  // Of a function, by all connections that have ended.
  [[nodiscard]] int calls(const std::string& operation = "%") const {
    EXPECT_TRUE(eventually([&] { return connections() == 0; }));
    return std::stoi(
        server.execute("SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname LIKE 'syncguard\\_' "
                       "|| $1 || '\\_v5%'",
                       {operation}));
  }
  // One of each operation.
  enum class Queue { none, exists };
  void use(Queue queue = Queue::exists, const std::string& options = "") const {
    auto locks = client(options);
    auto other = client(options);
    auto lease = locks.acquire("key");
    EXPECT_FALSE(is_granted(other.try_acquire("key")));
    EXPECT_TRUE(lease.extend(30s));
    std::thread waiting([&] { EXPECT_TRUE(other.acquire("key", patient)); });
    if (queue == Queue::exists) {
      EXPECT_TRUE(eventually([&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters") == "1"; }));
    }
    EXPECT_TRUE(lease.release());
    waiting.join();
    EXPECT_FALSE(locks.release(lease.id()));
    const auto held = locks.acquire("key");
    expect_error(ErrorCode::acquisition_timeout,
                 [&] { (void)other.acquire("key", {.wait = {.timeout = 2500ms, .retry_delay = 10s}}); });
    EXPECT_TRUE(locks.admin().break_lock("key", held.fence()));
  }
};

TEST_F(PostgresFunctions, EveryOperationCallsOne) {
  use();
  for (const auto* const operation : {"acquire", "release", "extend", "break", "join", "look", "leave"}) {
    EXPECT_GE(calls(operation), 1) << operation;
  }
}

TEST_F(PostgresFunctions, WaiterNeedsNoAttemptAfterItSawTheLockWhileJoining) {
  {
    auto holder = client();
    auto waiter = client();
    auto lease = holder.acquire("key", {.ttl = 10min});
    std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient)); });
    EXPECT_TRUE(eventually([&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters") == "1"; }));
    EXPECT_TRUE(lease.release());
    waiting.join();
  }
  EXPECT_EQ(calls("join"), 1);
  EXPECT_EQ(calls("acquire"), 3) << "the holder's, and the waiter's before it joined and after it was woken";
}

TEST_F(PostgresFunctions, PlainStatementsServeUntilSetup) {
  drop_functions();
  use(Queue::none);
  EXPECT_EQ(calls(), 0);
  {
    auto locks = client();
    EXPECT_TRUE(locks.try_acquire("key"));
    EXPECT_THAT(verdict_on(locks.admin().diagnose(), "functions"), StartsWith("warning: missing"));
    EXPECT_THAT(locks.admin().setup(), HasSubstr("created: 7 functions"));
    EXPECT_THAT(verdict_on(locks.admin().diagnose(), "functions"), StartsWith("fine"));
    EXPECT_TRUE(locks.try_acquire("key")) << "by a client that knew of no functions";
  }
  EXPECT_EQ(calls("acquire"), 1);
}

TEST_F(PostgresFunctions, StatementsServeIfFunctionsDisappear) {
  auto locks = client();
  auto lease = locks.acquire("key");
  drop_functions();
  EXPECT_TRUE(lease.extend(30s));
  EXPECT_TRUE(lease.release());
  EXPECT_TRUE(locks.try_acquire("key"));
}

// A waiter cannot look without them.
TEST_F(PostgresFunctions, WaiterKeepsNoConnectionIfFunctionsDisappear) {
  auto holder = client();
  auto locks = client("&pool=1");
  auto lease = holder.acquire("key", {.ttl = 10min});
  std::stop_source stop;
  std::thread waiting([&] {
    EXPECT_TRUE(error_of([&] {
      (void)locks.acquire("key", {.wait = {.timeout = 10min, .retry_delay = 5min, .max_delay = 5min}},
                          stop.get_token());
    }));
  });
  EXPECT_TRUE(eventually([&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters") == "1"; }));
  drop_functions();
  std::this_thread::sleep_for(2500ms);
  EXPECT_TRUE(locks.try_acquire("other key"));
  stop.request_stop();
  waiting.join();
}

TEST_F(PostgresFunctions, UserWithoutRightToCallThemUsesPlainStatements) {
  auto locks = open_with_long_timeout(server.url_of("caller", "?application_name=test"));
  EXPECT_TRUE(locks.try_acquire("key"));
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "functions"), StartsWith("fine"));
  server.execute("REVOKE EXECUTE ON FUNCTION " + functions() + " FROM PUBLIC");
  EXPECT_TRUE(locks.try_acquire("key")) << "revoked while it was used";
  EXPECT_TRUE(open_with_long_timeout(server.url_of("caller")).try_acquire("key"));
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "functions"), StartsWith("warning: this user may not call them"));
  server.execute("GRANT EXECUTE ON FUNCTION " + functions() + " TO caller");
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "functions"), StartsWith("fine"));
  drop_functions();
}

// They would run with the rights of the user that calls them.
TEST_F(PostgresFunctions, FunctionsOfAnotherRoleAreNotCalled) {
  server.execute("CREATE ROLE stranger; GRANT CREATE ON SCHEMA public TO stranger");
  server.execute(
      "DO $$ DECLARE f regprocedure; BEGIN FOR f IN SELECT oid FROM pg_proc WHERE proname LIKE "
      "'syncguard\\_%\\_v5\\_%' LOOP EXECUTE format('ALTER FUNCTION %s OWNER TO stranger', f); END LOOP; END $$");
  use(Queue::none);
  EXPECT_TRUE(open_with_long_timeout(server.url_of("caller", "?application_name=test")).try_acquire("key"));
  EXPECT_EQ(calls(), 0);
  EXPECT_THAT(verdict_on(client().admin().diagnose(), "functions"),
              StartsWith("warning: they belong to a role other than"));
  server.execute("DROP OWNED BY stranger; DROP ROLE stranger");
}

TEST_F(PostgresFunctions, StricterDefaultIsolationStillCallsThem) {
  use(Queue::exists, "&options=-c%20default_transaction_isolation%3Dserializable");
  EXPECT_GE(calls("acquire"), 2);
  EXPECT_EQ(server.execute("SELECT count(*) FROM syncguard_locks_waiters"), "0");
}

TEST_F(PostgresFunctions, TransactionPoolerNeedsNoOption) {
  const PgBouncer pooler(server, "default_pool_size = 2\n");
  {
    auto locks = open_with_long_timeout(pooler.url("?listen_url=off"));
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(locks.try_acquire("key"));
  }
  EXPECT_TRUE(eventually([&] {
    return server.execute(
               "SELECT sum(calls) >= 20 FROM pg_stat_user_functions WHERE funcname LIKE 'syncguard\\_acquire%'") == "t";
  }));
}

TEST_F(PostgresFunctions, SchemasAndTablesMayHaveLongAndOddNames) {
  const std::string schema = "odd $function$ \"schema\"";
  const std::string longest(51, 'x');
  server.execute("DROP SCHEMA IF EXISTS \"odd $function$ \"\"schema\"\"\" CASCADE");
  server.execute("CREATE SCHEMA \"odd $function$ \"\"schema\"\"\"");
  const auto path = "&options=-c%20search_path%3D%22odd%5C%20%24function%24%5C%20%22%22schema%22%22%22";
  const auto url =
      server.url("?application_name=test&table=" + longest + "&fence_table=" + std::string(50, 'x') + path);
  {
    auto locks = open_with_long_timeout(url);
    EXPECT_THAT(locks.admin().setup(), HasSubstr("7 functions"));
    EXPECT_TRUE(locks.try_acquire("key"));
  }
  EXPECT_EQ(calls("acquire"), 1);
  EXPECT_EQ(server.execute("SELECT max(octet_length(proname)) <= 63 AND count(*) = 7 FROM pg_proc JOIN pg_namespace ON "
                           "pronamespace = pg_namespace.oid WHERE nspname = $1",
                           {schema}),
            "t");
  server.execute("DROP SCHEMA \"odd $function$ \"\"schema\"\"\" CASCADE");
}

TEST_F(PostgresFunctions, SetupFromManyClientsAtOnceInstallsThemOnce) {
  drop_functions();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_FALSE(error_of([&] { setup_postgres_schema({.connection = server.url()}); })); });
  }
  for (auto& thread : threads) thread.join();
  const auto installed =
      "SELECT string_agg(oid::text, ',' ORDER BY oid) FROM pg_proc WHERE proname LIKE 'syncguard\\_%\\_v5\\_%'";
  const auto before = server.execute(installed);
  EXPECT_EQ(std::ranges::count(before, ','), 6);
  setup_postgres_schema({.connection = server.url()});
  EXPECT_EQ(server.execute(installed), before) << "a version in use is not replaced";
}

TEST_F(PostgresFunctions, ReadOnlyTheFrontOfALongQueue) {
  constexpr int waiters = 20'000;
  add_waiters("key", "waiter n", waiters, server_now);
  server.execute("SELECT pg_stat_reset()");
  {
    auto locks = client();
    auto other = client();
    auto lease = locks.acquire("key");
    std::stop_source stop;
    std::thread waiting([&] { EXPECT_TRUE(error_of([&] { (void)other.acquire("key", patient, stop.get_token()); })); });
    // Reads only one row, because the test counts rows.
    EXPECT_TRUE(eventually([&] {
      return server.execute("SELECT waiter FROM syncguard_locks_waiters ORDER BY place + 0 DESC LIMIT 1") !=
             "waiter " + std::to_string(waiters);
    }));
    stop.request_stop();
    waiting.join();
    EXPECT_TRUE(lease.release());
  }
  EXPECT_GT(calls("join"), 0);
  const auto read = std::stoi(server.execute(
      "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'syncguard_locks_waiters'"));
  EXPECT_LT(read, waiters / 2);
}

TEST_F(PostgresFunctions, WaiterThatRetriesWritesOnlyIfItsPlaceMustChange) {
  const auto entry = [&] { return server.execute("SELECT string_agg(xmin::text, ' ') FROM syncguard_locks_waiters"); };
  {
    auto locks = client();
    auto other = client();
    auto lease = locks.acquire("key");
    std::stop_source stop;
    std::thread waiting([&] {
      EXPECT_TRUE(error_of([&] {
        (void)other.acquire("key", {.wait = {.timeout = 60s, .retry_delay = 5ms, .max_delay = 5ms}}, stop.get_token());
      }));
    });
    EXPECT_TRUE(eventually([&] { return !entry().empty(); }));
    // A look may still write once in ten seconds.
    EXPECT_TRUE(succeeds_once([&] {
      const auto before = entry();
      std::this_thread::sleep_for(1s);
      return entry() == before;
    }));
    server.execute("UPDATE syncguard_locks_waiters SET reservation_ms = 1");
    EXPECT_TRUE(eventually([&] {
      return server.execute("SELECT reservation_ms >= 50 FROM syncguard_locks_waiters") == "t";
    })) << "the waiter has measured a longer round trip";
    stop.request_stop();
    waiting.join();
  }
  EXPECT_GT(calls("join"), 10);
}

// The server plans a statement while few locks are held, and keeps the plan. Many were held before, so the index of the
// keys is large. The lock that is waited for expires last.
TEST_F(PostgresFunctions, WaitersReadOnlyTheLockOfTheirKey) {
  constexpr int many = 20'000;
  hold_keys(1, many);
  server.execute("DELETE FROM syncguard_locks");
  hold_keys(1, 5);
  server.execute("VACUUM ANALYZE syncguard_locks");
  {
    auto locks = client("&pool=1");
    const auto wait_in_vain = [&] {
      expect_error(ErrorCode::acquisition_timeout, [&] { (void)locks.acquire("key 1", {.wait = {.timeout = 2s}}); });
    };
    wait_in_vain();
    hold_keys(6, many);
    server.execute("SELECT pg_stat_reset()");
    wait_in_vain();
  }
  EXPECT_GT(calls("join"), 0);
  EXPECT_GT(calls("leave"), 0);
  const auto read =
      std::stoi(server.execute("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'syncguard_locks'"));
  EXPECT_LT(read, many / 2);
}

// As during an upgrade: clients that call functions, clients with plain statements, and the TypeScript library.
TEST_F(PostgresFunctions, MixedClientsExcludeEachOther) {
  constexpr int rounds = 25;
  server.execute("REVOKE EXECUTE ON FUNCTION " + functions() + " FROM PUBLIC");
  // Read and written by holders only, never at once: atomic for the thread sanitizer's sake.
  std::atomic<int> counter = 0;
  std::atomic<std::uint64_t> newest_fence = 0;
  const auto count = [&](std::uint64_t fence) {
    const int before = counter.load();
    EXPECT_GT(fence, newest_fence.exchange(fence));
    std::this_thread::yield();
    counter.store(before + 1);
  };
  std::vector<std::thread> threads;
  for (const std::string user : {"postgres", "caller", "postgres", "caller"}) {
    threads.emplace_back([&, user] {
      auto locks = open_with_long_timeout(server.url_of(user, "?application_name=test"));
      for (int i = 0; i < rounds; ++i) {
        auto lease = locks.acquire(
            "key", {.wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries, .retry_delay = 20ms}});
        count(lease.fence().value());
        EXPECT_TRUE(lease.release());
      }
    });
  }
  threads.emplace_back([&] {
    PostgresClient outsider(server);
    for (int i = 0; i < rounds;) {
      outsider("BEGIN");
      outsider("SELECT pg_advisory_xact_lock(hashtext('key'))");
      if (outsider("SELECT key FROM syncguard_locks WHERE key = 'key' FOR UPDATE") == "key") {
        outsider("ROLLBACK");
        std::this_thread::sleep_for(1ms);
        continue;
      }
      const auto fence = outsider(
          "INSERT INTO syncguard_fence_counters VALUES ('fence:key', 1, 'key') ON CONFLICT (fence_key) "
          "DO UPDATE SET fence = syncguard_fence_counters.fence + 1 RETURNING fence");
      const auto id = LockId::generate().str();
      outsider("INSERT INTO syncguard_locks VALUES ('key', '" + id + "', " + in_fences + " / 10 + 30000, 0, lpad('" +
               fence + "', 15, '0'), 'key')");
      outsider("COMMIT");
      count(std::stoull(fence));
      outsider("DELETE FROM syncguard_locks WHERE lock_id = '" + id + "'");
      ++i;
    }
  });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counter, 5 * rounds);
  EXPECT_GE(calls("acquire"), 2 * rounds);
  drop_functions();
}

// ---------------------------------------------------------------------------------------------------------------------
// Fences, with functions and without

struct PostgresFences : PostgresFunctions, ::testing::WithParamInterface<bool> {
  PostgresFences() {
    if (!GetParam()) drop_functions();
  }
  [[nodiscard]] std::uint64_t granted(const std::string& options = "") const {
    return client(options).acquire("key").fence().value();
  }
  [[nodiscard]] std::uint64_t clock() const { return std::stoull(server.execute("SELECT " + in_fences)); }
};
INSTANTIATE_TEST_SUITE_P(Statements, PostgresFences, ::testing::Bool(),
                         [](const auto& with) { return with.param ? "Functions" : "Plain"; });

TEST_P(PostgresFences, GrowAfterCountersWereLost) {
  std::uint64_t newest = 0;
  for (const auto* const loss :
       {"SELECT 1", "DELETE FROM syncguard_fence_counters", "UPDATE syncguard_fence_counters SET fence = 5"}) {
    server.execute(loss);
    const auto before = clock();
    const auto fence = granted();
    EXPECT_GE(fence, before) << loss;
    EXPECT_LE(fence, clock()) << loss;
    EXPECT_GT(fence, newest) << loss;
    EXPECT_EQ(server.execute("SELECT fence FROM syncguard_fence_counters"), std::to_string(fence));
    newest = fence;
  }
}

TEST_P(PostgresFences, CounterAheadOfClockCounts) {
  const auto ahead = clock() + 1'000'000'000;
  server.execute("INSERT INTO syncguard_fence_counters VALUES ('fence:key', $1)", {std::to_string(ahead)});
  EXPECT_EQ(granted(), ahead + 1);
  EXPECT_EQ(granted(), ahead + 2);
}

TEST_P(PostgresFences, OptionCounterCounts) {
  EXPECT_EQ(granted("&fences=counter"), 1U);
  EXPECT_EQ(granted("&fences=counter"), 2U);
  EXPECT_GT(granted("&fences=clock"), 2U);
}

TEST_F(PostgresFunctions, AbsurdClockIsIgnoredWithAWarning) {
  // The year 2300.
  server.execute(R"(DO $do$ BEGIN EXECUTE replace(pg_get_functiondef((SELECT oid FROM pg_proc WHERE proname LIKE
    'syncguard\_acquire\_v5\_%')), 'clock_timestamp()', '''2300-01-01''::timestamptz'); END $do$)");
  std::atomic<int> warnings = 0;
  Log log([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::warning && text.find("2255") != std::string_view::npos) ++warnings;
  });
  {
    auto locks = open_with_long_timeout(server.url("?application_name=test"), {.log = log});
    EXPECT_EQ(locks.acquire("key").fence(), Fence(1));
    (void)locks.close();
  }
  EXPECT_TRUE(eventually([&] { return warnings == 1; }));
  server.execute("DROP TABLE syncguard_locks");
  drop_functions();
}

// ---------------------------------------------------------------------------------------------------------------------
// What a crash can lose

// A server that writes its log only when a commit asks for it.
struct PostgresDurability : ::testing::Test {
  PostgresDurability() { setup_postgres_schema({.connection = server.url()}); }
  // Whether everything that was done so far is in the log on disk.
  [[nodiscard]] bool is_flushed() const {
    return server.execute("SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()") == "t";
  }
  PostgresServer server{{.configuration = {"wal_level = minimal", "max_wal_senders = 0", "wal_writer_delay = 10s",
                                           "autovacuum = off", "checkpoint_timeout = 1d"}}};
};

TEST_F(PostgresDurability, GrantsAndExtensionsAreDurableAndOnlyReleasesOfShortLocksAreNot) {
  for (const std::string setting : {"on", "off"}) {
    auto locks = open_with_long_timeout(server.url("?options=-c%20synchronous_commit%3D" + setting));
    // Reading a table cleans it up, which is logged, too, now and then and without a flush.
    for (int i = 0; i < 3; ++i) (void)locks.acquire("key");
    constexpr int rounds = 5;
    std::map<std::string, int> flushed;
    for (int i = 0; i < rounds; ++i) {
      auto lease = locks.acquire("key", {.ttl = 1h});
      flushed["acquire"] += is_flushed() ? 1 : 0;
      EXPECT_TRUE(lease.extend(2h));
      flushed["extend"] += is_flushed() ? 1 : 0;
      EXPECT_TRUE(lease.release());
      flushed["release of a long lock"] += is_flushed() ? 1 : 0;
      lease = locks.acquire("key", {.ttl = 30s});
      flushed["acquire of a short lock"] += is_flushed() ? 1 : 0;
      EXPECT_TRUE(lease.release());
      flushed["release of a short lock"] += is_flushed() ? 1 : 0;
    }
    for (const auto& [operation, count] : flushed) {
      if (operation == "release of a short lock") {
        EXPECT_LT(count, rounds) << "synchronous_commit = " << setting;
      } else {
        EXPECT_GT(count, rounds / 2) << operation << ", synchronous_commit = " << setting;
      }
    }
  }
}

}  // namespace
}  // namespace syncguard::testing
