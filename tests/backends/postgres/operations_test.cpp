// The data in PostgreSQL, setup, and errors. Covers each row of the contract's error table on a real server.

#include "fixture.hpp"
#include "servers/loopback.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/is_granted.hpp"
#include "support/vectors.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// ---------------------------------------------------------------------------------------------------------------------
// The stored data

TEST_F(Postgres, SetupCreatesSameTablesAndIndexesAsTypeScript) {
  const auto vectors = load_vectors("wire").at("postgres");
  for (const auto& column : vectors.at("columns")) {
    const auto found = server.execute(
        "SELECT data_type || ' ' || is_nullable || ' ' || coalesce(column_default, 'null') "
        "FROM information_schema.columns WHERE table_name = $1 AND column_name = $2",
        {column.at("table_name").get<std::string>(), column.at("column_name").get<std::string>()});
    const auto& expected = column.at("column_default");
    EXPECT_EQ(found, column.at("data_type").get<std::string>() + " " + column.at("is_nullable").get<std::string>() +
                         " " + (expected.is_null() ? "null" : expected.get<std::string>()))
        << column.at("column_name");
  }
  EXPECT_EQ(server.execute("SELECT count(*) FROM information_schema.columns WHERE table_name IN "
                           "('syncguard_locks', 'syncguard_fence_counters')"),
            std::to_string(vectors.at("columns").size() + 2))
      << "and the columns holder and holder_lock_id";
  for (const auto& index : vectors.at("indexes")) {
    EXPECT_EQ(server.execute("SELECT indexdef FROM pg_indexes WHERE indexname = $1",
                             {index.at("indexname").get<std::string>()}),
              index.at("indexdef").get<std::string>());
  }
  EXPECT_EQ(server.execute("SELECT count(*) FROM pg_indexes WHERE tablename IN "
                           "('syncguard_locks', 'syncguard_fence_counters')"),
            std::to_string(vectors.at("indexes").size()));
}

TEST_F(Postgres, StoresSameRowsAsTypeScript) {
  auto locks = client("&fences=counter");
  const auto rows = load_vectors("wire").at("postgres").at("rows");
  for (const auto& recorded : rows) {
    const auto key = recorded.at("key").get<std::string>();
    const auto lease = locks.acquire(key, {.ttl = 30s});
    const auto& theirs = recorded.at("lock");
    const auto ours = json::parse(
        server.execute("SELECT row_to_json(l) FROM syncguard_locks l WHERE lock_id = $1", {lease.id().str()}));
    EXPECT_EQ(ours.at("key"), theirs.at("key"));
    EXPECT_EQ(ours.at("user_key"), theirs.at("user_key"));
    EXPECT_EQ(ours.at("fence"), theirs.at("fence"));
    EXPECT_EQ(ours.at("expires_at_ms").get<std::int64_t>() - ours.at("acquired_at_ms").get<std::int64_t>(), 30'000);
    EXPECT_EQ(ours.at("holder_lock_id"), lease.id().str());
    EXPECT_EQ(ours.size(), theirs.size() + 2);
    const auto counter =
        json::parse(server.execute("SELECT row_to_json(c) FROM syncguard_fence_counters c "
                                   "WHERE fence_key = $1",
                                   {recorded.at("fence").at("fence_key").get<std::string>()}));
    EXPECT_EQ(std::to_string(counter.at("fence").get<std::int64_t>()),
              recorded.at("fence").at("fence").get<std::string>());
    EXPECT_EQ(counter.at("key_debug"), recorded.at("fence").at("key_debug"));
  }
}

TEST_F(Postgres, OtherLibrariesDoNotInheritLabel) {
  auto locks = client();
  auto lease = locks.acquire("key");
  EXPECT_NE(locks.lookup(Key("key"))->holder, "");
  // The upsert of the TypeScript library leaves columns alone that it does not know.
  const auto theirs = LockId::generate();
  server.execute("UPDATE syncguard_locks SET lock_id = $1, fence = '999999999999999'", {theirs.str()});
  EXPECT_EQ(locks.lookup(Key("key"))->holder, "");
  EXPECT_EQ(locks.lookup(theirs)->holder, "");
  EXPECT_EQ(locks.admin().list().locks.at(0).holder, "");
  EXPECT_EQ(locks.admin().inspect("key").holders.at(0).label, "");
  lease.detach();
}

TEST_F(Postgres, TablesWithoutLabelsWorkUntilSetupAddsThem) {
  server.execute("ALTER TABLE syncguard_locks DROP COLUMN holder, DROP COLUMN holder_lock_id");
  {
    auto locks = client();
    auto lease = locks.acquire("key");
    EXPECT_TRUE(lease.extend(30s));
    EXPECT_EQ(locks.lookup(Key("key"))->holder, "");
    EXPECT_EQ(locks.admin().list().locks.size(), 1U);
    EXPECT_EQ(locks.admin().inspect("key").holders.at(0).label, "");
    EXPECT_THAT(verdict_on(locks.admin().diagnose(), "holder labels"), HasSubstr("warning: not stored"));
    EXPECT_TRUE(lease.release());
    EXPECT_THAT(locks.admin().setup(), HasSubstr("holder_lock_id"));
    EXPECT_THAT(verdict_on(locks.admin().diagnose(), "holder labels"), HasSubstr("fine"));
    const auto next = locks.acquire("key");
    EXPECT_NE(locks.lookup(Key("key"))->holder, "");
  }
  // A client that has seen the columns goes on without them.
  auto locks = client();
  EXPECT_TRUE(locks.acquire("key").release());
  server.execute("ALTER TABLE syncguard_locks DROP COLUMN holder, DROP COLUMN holder_lock_id");
  EXPECT_TRUE(locks.acquire("key").release());
}

TEST_F(Postgres, ConnectsByKeywordsAndValues) {
  const std::string name = R"(it's a \ name = 'x' )";
  const auto connection = postgres_connection({{"host", "127.0.0.1"},
                                               {"port", std::to_string(server.port())},
                                               {"user", "postgres"},
                                               {"dbname", "postgres"},
                                               {"application_name", name}});
  setup_postgres_schema({.connection = connection});
  const Locks by_keywords(make_postgres_backend({.connection = connection}));
  const auto lease = by_keywords.acquire("keywords");
  EXPECT_EQ(server.execute("SELECT DISTINCT application_name FROM pg_stat_activity WHERE application_name LIKE 'it%'"),
            name);
}

TEST_F(Postgres, ListContinuesBehindManyExpiredLocks) {
  server.execute(
      "INSERT INTO syncguard_locks SELECT 'expired:' || n, lpad(n::text, 22, '0'), 1, 0, '000000000000001', "
      "'expired:' || n FROM generate_series(1, 4500) AS n");
  auto locks = client();
  const auto lease = locks.acquire("z");
  std::vector<std::string> found;
  std::string cursor;
  int pages = 0;
  do {
    const auto page = locks.admin().list({.cursor = cursor});
    for (const auto& lock : page.locks) found.push_back(lock.key.str());
    cursor = page.cursor;
    ++pages;
  } while (!cursor.empty());
  EXPECT_EQ(found, (std::vector<std::string>{"z"}));
  EXPECT_EQ(pages, 3) << "each examines at most 2,000 locks";
}

TEST_F(Postgres, ReadsRowsAndTablesOfTypeScript) {
  // The TypeScript library creates neither the table of waiters nor the columns for labels.
  server.execute("DROP TABLE syncguard_locks_waiters");
  server.execute("ALTER TABLE syncguard_locks DROP COLUMN holder, DROP COLUMN holder_lock_id");
  auto locks = client("&fences=counter");
  const auto rows = load_vectors("wire").at("postgres").at("rows");
  for (const auto& recorded : rows) {
    const auto& lock = recorded.at("lock");
    const auto text = [&](const char* name) { return lock.at(name).get<std::string>(); };
    server.execute(
        "INSERT INTO syncguard_locks VALUES ($1, $2, $3::bigint + 10000000000000, $4, $5, $6)",
        {text("key"), text("lock_id"), text("expires_at_ms"), text("acquired_at_ms"), text("fence"), text("user_key")});
    const auto& fence = recorded.at("fence");
    server.execute("INSERT INTO syncguard_fence_counters VALUES ($1, $2, $3)",
                   {fence.at("fence_key").get<std::string>(), fence.at("fence").get<std::string>(),
                    fence.at("key_debug").get<std::string>()});
    const Key key(recorded.at("key").get<std::string>());
    EXPECT_FALSE(is_granted(locks.try_acquire(key)));
    const auto found = locks.admin().get_by_key_raw(key);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->lock_id.str(), text("lock_id"));
    EXPECT_TRUE(locks.extend(found->lock_id, 10s));
    EXPECT_TRUE(locks.release(found->lock_id));
    EXPECT_EQ(locks.acquire(key).fence(), Fence(2)) << "the fence counter must continue";
  }
  // Without that table, waiters poll.
  auto other = client();
  auto lease = locks.acquire("key");
  std::thread waiting(
      [&] { EXPECT_TRUE(other.acquire("key", {.wait = {.timeout = 60s, .max_retries = 1000, .retry_delay = 20ms}})); });
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(lease.release());
  waiting.join();
}

// The statistics usually show small or empty tables, so the planner expects full scans to be cheap. They are not if
// there are many locks or dead rows.
TEST_F(Postgres, EveryOperationUsesAnIndex) {
  const auto scans = [&](const char* kind) {
    return std::stoi(server.execute(std::string("SELECT sum(") + kind + ")::int FROM pg_stat_user_tables"));
  };
  {
    auto locks = client();
    (void)locks.acquire("key");
    server.execute("VACUUM ANALYZE syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters");
    // Makes the server plan again, and switch to generic plans.
    for (int i = 0; i < 20; ++i) (void)locks.acquire("key");
  }
  const int all_of_it = scans("seq_scan");
  {
    auto locks = client();
    auto other = client();
    for (int i = 0; i < 20; ++i) {
      auto lease = locks.acquire("key", {.ttl = 10min});
      EXPECT_TRUE(lease.extend(10min));
      EXPECT_TRUE(locks.lookup(lease.id()));
      EXPECT_TRUE(locks.is_locked("key"));
      EXPECT_EQ(locks.admin().list().locks.size(), 1U);
      EXPECT_EQ(locks.admin().inspect("key").fence, locks.admin().raise_fence("key", Fence(1)));
      auto waiting = std::async(std::launch::async, [&] { (void)other.acquire("key", patient); });
      EXPECT_EQ(waiting.wait_for(20ms), std::future_status::timeout);
      EXPECT_TRUE(lease.release());
      waiting.get();
    }
  }
  // The server updates the statistics when a connection ends.
  EXPECT_TRUE(eventually(
      [&] { return server.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'test'") == "0"; }));
  EXPECT_GT(scans("idx_scan"), 100);
  EXPECT_EQ(scans("seq_scan"), all_of_it);
}

TEST_F(Postgres, DamagedOrExhaustedCounterGrantsNothing) {
  auto locks = client();
  for (const std::string value : {"900000000000000", "-1"}) {
    server.execute(
        "INSERT INTO syncguard_fence_counters VALUES ('fence:key', $1) ON CONFLICT (fence_key) DO UPDATE "
        "SET fence = excluded.fence",
        {value});
    expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("key"); });
    EXPECT_EQ(server.execute("SELECT fence FROM syncguard_fence_counters"), value);
    EXPECT_EQ(server.execute("SELECT count(*) FROM syncguard_locks"), "0");
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Setup

TEST_F(Postgres, SetupIsIdempotentAndConcurrent) {
  server.execute("DROP TABLE syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters");
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_FALSE(error_of([&] { setup_postgres_schema({.connection = server.url()}); })); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(client().try_acquire("key"));
}

TEST_F(Postgres, ErrorNamesWhatIsMissing) {
  server.execute("DROP TABLE syncguard_fence_counters");
  auto locks = client();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), HasSubstr("\"syncguard_fence_counters\" does not exist"));
  EXPECT_THAT(error->what(), Not(HasSubstr("\"syncguard_locks\"")));
  setup_postgres_schema({.connection = server.url()});
  EXPECT_TRUE(locks.try_acquire("key")) << "the tables must be checked again";
}

TEST_F(Postgres, TableDroppedLaterIsReportedAsMissing) {
  auto locks = client();
  EXPECT_TRUE(locks.try_acquire("key"));
  server.execute("DROP TABLE syncguard_locks");
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.try_acquire("key"); });
}

TEST_F(Postgres, TablesCanHaveOtherNamesAndSchemas) {
  server.execute("CREATE SCHEMA other");
  const PostgresOptions options{
      .connection = server.url(), .table = "other.MyLocks", .fence_table = "other.my_counters"};
  setup_postgres_schema(options);
  Locks locks(make_postgres_backend(options));
  const auto lease = locks.acquire("key");
  EXPECT_EQ(server.execute("SELECT key FROM other.\"MyLocks\""), "key");
  EXPECT_EQ(server.execute("SELECT indexname FROM pg_indexes WHERE indexname = 'idx_MyLocks_lock_id'"),
            "idx_MyLocks_lock_id");
  EXPECT_THAT(postgres_schema(options), HasSubstr("\"other\".\"MyLocks\""));
  EXPECT_THAT(postgres_schema(options), HasSubstr("CREATE OR REPLACE FUNCTION \"other\".\"syncguard_acquire_v5_"));
  PostgresClient outsider(server);
  for (int i = 0; i < 2; ++i) EXPECT_NO_THROW(outsider(postgres_schema(options))) << "it can be repeated";
}

TEST_F(Postgres, RejectsInvalidTableNames) {
  for (const std::string name : {"", "a b", "a\"b", "a;b", "1a", "a.b.c", ".a", "a.", "é"}) {
    expect_error(ErrorCode::invalid_argument, [&] { (void)make_postgres_backend({.table = name}); });
    expect_error(ErrorCode::invalid_argument, [&] { (void)make_postgres_backend({.fence_table = name}); });
  }
  expect_error(ErrorCode::invalid_argument, [&] { (void)make_postgres_backend({.table = std::string(52, 'a')}); });
  expect_error(ErrorCode::invalid_argument, [] { (void)make_postgres_backend({.table = "a", .fence_table = "a"}); });
  expect_error(ErrorCode::invalid_argument,
               [] { (void)make_postgres_backend({.table = "a", .fence_table = "a_waiters"}); });
}

TEST_F(Postgres, RejectsSameTableForTwoPurposes) {
  auto locks = client("&fence_table=public.syncguard_locks");
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.try_acquire("key"); });
}

TEST_F(Postgres, UserNeedsOnlyTablePrivileges) {
  server.execute(
      "DROP ROLE IF EXISTS locker; CREATE ROLE locker LOGIN; "
      "GRANT SELECT, INSERT, UPDATE, DELETE ON syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters TO "
      "locker");
  auto locks = open_with_long_timeout(server.url_of("locker"));
  auto other = open_with_long_timeout(server.url_of("locker"));
  auto lease = locks.acquire("key");
  std::thread waiting(
      [&] { EXPECT_TRUE(other.acquire("key", {.wait = {.timeout = 60s, .retry_delay = 20s, .max_delay = 20s}})); });
  EXPECT_TRUE(eventually([&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters") == "1"; }));
  EXPECT_TRUE(lease.extend(30s));
  EXPECT_TRUE(lease.release());
  waiting.join();
  server.execute("REVOKE UPDATE ON syncguard_fence_counters FROM locker");
  expect_error(ErrorCode::auth_failed, [&] { (void)locks.try_acquire("key"); });
  EXPECT_EQ(server.execute("SELECT count(*) FROM syncguard_locks"), "0");
  server.execute("DROP OWNED BY locker; DROP ROLE locker");
}

// ---------------------------------------------------------------------------------------------------------------------
// Errors

TEST_F(Postgres, WrongPassword) {
  server.execute("DROP ROLE IF EXISTS guarded; CREATE ROLE guarded LOGIN PASSWORD 'right'");
  const auto rules = server.file("data") / "pg_hba.conf";
  std::ofstream(rules, std::ios::trunc) << "host all guarded 127.0.0.1/32 scram-sha-256\n"
                                           "host all all 127.0.0.1/32 trust\nlocal all all trust\n";
  server.execute("SELECT pg_reload_conf()");
  const auto refusal = [&](const std::string& user) {
    std::optional<LockError> error;
    EXPECT_TRUE(eventually([&] {
      error = error_of([&] { (void)open_with_long_timeout(server.url_of(user)).is_locked("key"); });
      return error && error->code() == ErrorCode::auth_failed;
    }));
    return error ? std::string(error->what()) : "";
  };
  EXPECT_THAT(refusal("guarded:wrong-secret"), Not(HasSubstr("wrong-secret")));
  refusal("guarded");
  refusal("nobody_at_all");
}

TEST_F(Postgres, ConnectionRefusedAndUnknownDatabase) {
  const LoopbackSocket unreachable;
  expect_error(ErrorCode::service_unavailable, [&] {
    (void)open("postgres://postgres@127.0.0.1:" + std::to_string(unreachable.port()) + "/postgres").is_locked("key");
  });
  expect_error(ErrorCode::service_unavailable,
               [&] { (void)open("postgres://no.such.host.invalid/x?operation_timeout=20s").is_locked("key"); });
  expect_error(ErrorCode::invalid_argument, [&] {
    (void)open_with_long_timeout("postgres://postgres@127.0.0.1:" + std::to_string(server.port()) + "/nothing")
        .is_locked("key");
  });
}

TEST_F(Postgres, RejectsUrlsThatLibpqRejects) {
  for (const std::string text : {"postgres://host/db?no_such_option=secret", "postgres:secret"}) {
    const auto error = error_of([&] { (void)open(text); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error->what(), Not(HasSubstr("secret")));
  }
  expect_error(ErrorCode::invalid_argument, [&] { (void)client("&pool=0"); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)client("&listen_url=nonsense"); });
}

TEST_F(Postgres, SeveralHostsAndServices) {
  const auto port = std::to_string(server.port());
  const LoopbackSocket unreachable;
  EXPECT_FALSE(open_with_long_timeout("postgres://postgres@127.0.0.1:" + std::to_string(unreachable.port()) +
                                      ",127.0.0.1:" + port +
                                      "/postgres?target_session_attrs=read-write&connect_timeout=20")
                   .is_locked("key"));
  const TemporaryFolder folder;
  const auto file = folder.path() / "services";
  std::ofstream(file) << "[locks]\nhost=127.0.0.1\nport=" << port << "\nuser=postgres\ndbname=postgres\n";
  setenv("PGSERVICEFILE", file.c_str(), 1);
  EXPECT_FALSE(open_with_long_timeout("postgres://?service=locks").is_locked("key"));
  expect_error(ErrorCode::invalid_argument, [] { (void)open("postgres://?service=nothing").is_locked("key"); });
  unsetenv("PGSERVICEFILE");
}

TEST_F(Postgres, TooManyConnections) {
  server.execute("DROP ROLE IF EXISTS single; CREATE ROLE single LOGIN CONNECTION LIMIT 1");
  Locks first = open_with_long_timeout(server.url_of("single"));
  // The role may not read the tables, but it is connected.
  expect_error(ErrorCode::auth_failed, [&] { (void)first.is_locked("key"); });
  expect_error(ErrorCode::rate_limited,
               [&] { (void)open_with_long_timeout(server.url_of("single")).is_locked("key"); });
}

TEST_F(Postgres, TimeoutsCanBeForever) {
  EXPECT_FALSE(open(server.url("?connect_timeout=3000000h&operation_timeout=3000000h")).is_locked("key"));
}

TEST_F(Postgres, ExhaustedPoolIsRateLimited) {
  auto locks = client("&pool=1&operation_timeout=2s");
  (void)locks.is_locked("key");
  server.pause();
  // The connection stays in use until the server has ended the statement.
  expect_error(ErrorCode::network_timeout, [&] { (void)locks.is_locked("key"); });
  expect_error(ErrorCode::rate_limited, [&] { (void)locks.is_locked("key"); });
  server.resume();
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("key"); }); }));
}

TEST_F(Postgres, MapsServerErrors) {
  server.execute(
      "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
      "$$ BEGIN RAISE 'no' USING ERRCODE = (SELECT code FROM public.refusal); END $$; "
      "CREATE TABLE IF NOT EXISTS refusal (code text); "
      "CREATE TRIGGER refuse BEFORE INSERT ON syncguard_locks FOR EACH ROW EXECUTE FUNCTION refuse()");
  auto locks = client("&fences=counter");
  const std::vector<std::pair<std::string, ErrorCode>> table = {{"40001", ErrorCode::service_unavailable},
                                                                {"40P01", ErrorCode::service_unavailable},
                                                                {"57P03", ErrorCode::service_unavailable},
                                                                {"08006", ErrorCode::service_unavailable},
                                                                {"25006", ErrorCode::service_unavailable},
                                                                {"28000", ErrorCode::auth_failed},
                                                                {"42501", ErrorCode::auth_failed},
                                                                {"22001", ErrorCode::invalid_argument},
                                                                {"23514", ErrorCode::invalid_argument},
                                                                {"42P01", ErrorCode::invalid_argument},
                                                                {"53100", ErrorCode::rate_limited},
                                                                {"53300", ErrorCode::rate_limited},
                                                                {"57014", ErrorCode::network_timeout},
                                                                {"55P03", ErrorCode::network_timeout},
                                                                {"XX000", ErrorCode::internal},
                                                                {"P0001", ErrorCode::internal}};
  for (const auto& [sqlstate, code] : table) {
    server.execute("DELETE FROM refusal; INSERT INTO refusal VALUES ('" + sqlstate + "')");
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    ASSERT_TRUE(error) << sqlstate;
    EXPECT_EQ(error->code(), code) << sqlstate << ": " << error->what();
    EXPECT_FALSE(error->in_doubt()) << "the server rolled the acquire back";
  }
  EXPECT_EQ(connections("state <> 'idle'"), 0) << "no transaction must be left open";
  server.execute("DROP TRIGGER refuse ON syncguard_locks");
  EXPECT_TRUE(locks.try_acquire("key")) << "the connection must still be usable";
  EXPECT_EQ(server.execute("SELECT fence FROM syncguard_fence_counters"), "1")
      << "the failed acquires must have no effect";
}

TEST_F(Postgres, ReadOnlyServerIsUnavailable) {
  auto locks = client("&options=-c%20default_transaction_read_only%3Don");
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.try_acquire("key"); });
  EXPECT_FALSE(locks.is_locked("key"));
  auto holder = client();
  const auto lease = holder.acquire("key");
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.try_acquire("key"); });
}

TEST_F(Postgres, StricterDefaultIsolationHasNoEffect) {
  auto locks = client("&options=-c%20default_transaction_isolation%3Dserializable");
  auto other = client("&options=-c%20default_transaction_isolation%3Dserializable");
  std::vector<std::thread> threads;
  for (auto* each : {&locks, &other}) {
    threads.emplace_back([each] {
      for (int i = 0; i < 30; ++i) EXPECT_TRUE(each->acquire("key", {.wait = {.timeout = 60s, .max_retries = 1000}}));
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(Postgres, TlsVerifiesServer) {
  PostgresServer secure({.tls = true});
  setup_postgres_schema({.connection = secure.url()});
  const auto verified_by = [&](const std::string& authority) {
    return open_with_long_timeout(secure.url("?sslmode=verify-full&sslrootcert=" + secure.file(authority).string()));
  };
  EXPECT_FALSE(verified_by("ca.crt").is_locked("key"));
  expect_error(ErrorCode::auth_failed, [&] { (void)verified_by("client.crt").is_locked("key"); });
}

}  // namespace
}  // namespace syncguard::testing
