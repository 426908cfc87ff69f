// How the PostgreSQL backend connects: passwords that expire, limits of the server, servers that change.

#include "backends/postgres/pool.hpp"
#include "core/causes.hpp"
#include "fixture.hpp"
#include "servers/counting_proxy.hpp"
#include "support/counted_connections.hpp"
#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/tcp_connections.hpp"
#include "support/thread_count.hpp"

#include <gmock/gmock.h>
#include <asio/co_spawn.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/strand.hpp>

#include <atomic>
#include <fstream>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

// ---------------------------------------------------------------------------------------------------------------------
// Passwords that expire

struct PostgresPasswords : Postgres {
  PostgresPasswords() {
    server.execute("DROP ROLE IF EXISTS guarded; CREATE ROLE guarded LOGIN SUPERUSER PASSWORD 'first'");
    std::ofstream(server.file("data") / "pg_hba.conf", std::ios::trunc)
        << "host all guarded 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\nlocal all all trust\n";
    server.execute("SELECT pg_reload_conf()");
    EXPECT_TRUE(eventually([&] {
      const auto error = error_of([&] { (void)open_with_long_timeout(server.url_of("guarded")).is_locked("key"); });
      return error && error->code() == ErrorCode::auth_failed;
    }));
  }
  void end_connections() const {
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guarded'");
    EXPECT_TRUE(eventually(
        [&] { return server.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'guarded'") == "0"; }));
  }
};

TEST_F(PostgresPasswords, CallbackIsCalledForEachConnection) {
  std::atomic<const char*> password = "first";
  std::atomic<int> calls = 0;
  std::atomic<bool> on_this_thread = false;
  PostgresOptions options{.connection = server.url_of("guarded"), .operation_timeout = 60s};
  options.password_callback = [&, test = std::this_thread::get_id()]() -> std::string {
    ++calls;
    if (std::this_thread::get_id() == test) on_this_thread = true;
    return password.load();
  };
  Locks locks(make_postgres_backend(options));
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_EQ(calls, 1) << "there was only one connection";
  server.execute("ALTER ROLE guarded PASSWORD 'second'");
  end_connections();
  const auto refused = error_of([&] { (void)locks.is_locked("key"); });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), ErrorCode::auth_failed);
  EXPECT_THAT(refused->what(), Not(HasSubstr("first")));
  password = "second";
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_EQ(calls, 3);
  EXPECT_FALSE(on_this_thread) << "the callback may block, so it must run on another thread";
}

TEST_F(PostgresPasswords, CommandPrintsThePassword) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "token";
  std::ofstream(file) << "first\n";
  const auto url = server.url_of("guarded", "?password_command=cat%20" + file.string());
  auto locks = open_with_long_timeout(url);
  EXPECT_FALSE(locks.is_locked("key"));
  server.execute("ALTER ROLE guarded PASSWORD 'second'");
  std::ofstream(file) << "second\n";
  end_connections();
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_NO_THROW((void)locks.admin().setup()) << "setup opens its own connection";
}

TEST_F(PostgresPasswords, CommandThatFailsIsReportedWithoutItsOutput) {
  auto locks = open_with_long_timeout(server.url_of("guarded", "?password_command=echo%20geheim%3Bexit%202"));
  const auto error = error_of([&] { (void)locks.is_locked("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_THAT(error->what(), HasSubstr("exit status 2"));
  EXPECT_THAT(error->what(), Not(HasSubstr("geheim")));
}

// ---------------------------------------------------------------------------------------------------------------------
// Servers that allow few connections

struct PostgresConnections : Postgres {
  // Creates a role with a connection limit.
  void make_role(int limit) const {
    server.execute("CREATE ROLE limited LOGIN CONNECTION LIMIT " + std::to_string(limit) +
                   "; GRANT SELECT, INSERT, UPDATE, DELETE ON syncguard_locks, syncguard_fence_counters, "
                   "syncguard_locks_waiters TO limited");
  }
  [[nodiscard]] int refused_connections() const {
    std::ifstream log(server.file("log"));
    int count = 0;
    for (std::string line; std::getline(log, line);) {
      if (line.find("too many connections for role") != std::string::npos) ++count;
    }
    return count;
  }
};

TEST_F(PostgresConnections, WaiterThatCannotListenPollsInsteadOfSpinning) {
  make_role(1);
  auto holder = client();
  const auto lease = holder.acquire("key", {.ttl = 10min});
  auto waiter = open_with_long_timeout(server.url_of("limited", "?pool=1"));
  const auto error = error_of([&] { (void)waiter.acquire("key", {.wait = {.timeout = 4s, .retry_delay = 100ms}}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::acquisition_timeout) << error->what();
  EXPECT_GE(refused_connections(), 1);
  EXPECT_LE(refused_connections(), 20);
}

TEST_F(PostgresConnections, CallersWaitForWorkingConnectionsIfTheServerRefusesMore) {
  make_role(4);
  auto locks = open_with_long_timeout(server.url_of("limited", "?pool=10&listen_url=off"));
  (void)locks.is_locked("key");
  std::atomic<int> errors = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 10; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 100; ++n) {
        if (error_of([&] { (void)locks.is_locked("key"); })) ++errors;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
  EXPECT_GE(refused_connections(), 1) << "the pool must have tried to open more connections";
}

TEST_F(PostgresConnections, PoolerWithoutPreparedStatementsWorks) {
  const PgBouncer pooler(server, "default_pool_size = 2\n");
  std::vector<std::thread> threads;
  std::atomic<int> errors = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      auto locks = open_with_long_timeout(pooler.url("?listen_url=off"));
      for (int n = 0; n < 30; ++n) {
        const auto error = error_of([&] { EXPECT_TRUE(locks.try_acquire("key " + std::to_string(i))); });
        if (error && errors++ == 0) ADD_FAILURE() << error->what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
}

// ---------------------------------------------------------------------------------------------------------------------
// Prepared statements

// One connection, used directly.
class OneConnection {
 public:
  explicit OneConnection(const std::string& url) {
    const CallLimits limits{{}, std::chrono::steady_clock::now() + 60s};
    const postgres::ConnectOptions options{.connection = url, .timeout = 60s};
    connection_ = finish(postgres::Connection::open(options, strand_, limits));
  }

  // The first column of the first row; empty if the statement returns none.
  std::string ask(const std::string& sql, bool is_prepared = false) {
    const std::vector<postgres::Statement> statements = {{.sql = &sql, .is_prepared = is_prepared}};
    const auto rows = finish(connection_->run(statements));
    return rows.count() == 0 ? "" : rows.text(0, 0);
  }
  std::string ask_prepared(const std::string& sql) { return ask(sql, true); }
  // The same on the thread of a blocking caller, in a transaction.
  std::string ask_prepared_in_transaction(const std::string& sql) {
    const std::string begin = "BEGIN ISOLATION LEVEL SERIALIZABLE";
    const std::string commit = "COMMIT";
    const std::vector<postgres::Statement> statements = {
        {.sql = &begin}, {.sql = &sql, .is_prepared = true}, {.sql = &commit}};
    connection_->send(statements);
    auto rows = connection_->receive_blocking({{}, std::chrono::steady_clock::now() + 60s});
    if (!rows) rows.emplace(finish(connection_->receive(statements)));
    return rows->text(0, 0);
  }
  // How many prepared statements the connection has on the server.
  std::string prepared() { return ask("SELECT count(*) FROM pg_prepared_statements"); }

 private:
  template <typename Result>
  Result finish(asio::awaitable<Result> coroutine) {
    std::optional<Result> result;
    auto keep_result = [&]() -> asio::awaitable<void> { result.emplace(co_await std::move(coroutine)); };
    asio::co_spawn(strand_, keep_result, [](const std::exception_ptr& error) {
      if (error) std::rethrow_exception(error);
    });
    while (!result) context_.run_one();
    return std::move(*result);
  }

  asio::io_context context_;
  const asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(context_);
  const asio::any_io_executor strand_ = asio::make_strand(context_);
  std::unique_ptr<postgres::Connection> connection_;
};

TEST_F(PostgresConnections, FrequentStatementsArePreparedOnce) {
  OneConnection connection(server.url());
  EXPECT_EQ(connection.ask_prepared("SELECT 1"), "1");
  EXPECT_EQ(connection.prepared(), "0") << "there could still be a pooler";
  EXPECT_EQ(connection.ask_prepared("SELECT 1"), "1");
  EXPECT_EQ(connection.ask_prepared("SELECT 1"), "1");
  EXPECT_EQ(connection.ask_prepared("SELECT 2"), "2");
  EXPECT_EQ(connection.prepared(), "2");
}

TEST_F(PostgresConnections, RequestIsSentAgainIfAPreparedStatementIsGone) {
  for (const auto ask : {&OneConnection::ask_prepared, &OneConnection::ask_prepared_in_transaction}) {
    OneConnection connection(server.url());
    for (int i = 0; i < 2; ++i) EXPECT_EQ((connection.*ask)("SELECT 1"), "1");
    EXPECT_EQ(connection.prepared(), "1");
    connection.ask("DEALLOCATE ALL");
    for (int i = 0; i < 2; ++i) EXPECT_EQ((connection.*ask)("SELECT 1"), "1");
    EXPECT_EQ(connection.prepared(), "0");
  }
}

TEST_F(PostgresConnections, RequestIsSentAgainIfTheIdOfTheServerProcessIsSecret) {
  make_role(20);
  server.execute("REVOKE EXECUTE ON FUNCTION pg_backend_pid() FROM PUBLIC");
  OneConnection connection(server.url_of("limited"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(connection.ask_prepared("SELECT 1"), "1");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(connection.ask_prepared_in_transaction("SELECT 1"), "1");
  EXPECT_EQ(connection.prepared(), "0");
}

TEST_F(PostgresConnections, RequestIsSentAgainIfAPreparedStatementExistsAlready) {
  OneConnection first(server.url());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(first.ask_prepared("SELECT 1"), "1");
  const auto name = first.ask("SELECT name FROM pg_prepared_statements");
  OneConnection second(server.url());
  EXPECT_EQ(second.ask_prepared("SELECT 1"), "1");
  second.ask("PREPARE \"" + name + "\" AS SELECT 'other'");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(second.ask_prepared("SELECT 1"), "1");
}

TEST_F(PostgresConnections, FailedPreparationIsNotRemembered) {
  OneConnection connection(server.url());
  EXPECT_EQ(connection.ask_prepared("SELECT 1"), "1");
  EXPECT_THROW(connection.ask_prepared("SELECT * FROM missing"), LockError);
  server.execute("CREATE TABLE missing AS SELECT 3");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(connection.ask_prepared("SELECT * FROM missing"), "3");
}

TEST_F(PostgresConnections, NothingIsPreparedBehindAPooler) {
  const PgBouncer pooler(server, "default_pool_size = 1\n");
  OneConnection connection(pooler.url(""));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(connection.ask_prepared("SELECT 1"), "1");
  EXPECT_EQ(connection.prepared(), "0");
}

TEST_F(PostgresConnections, PoolerWithNoMoreConnectionsIsRateLimited) {
  const PgBouncer pooler(server, "max_client_conn = 1\n");
  const PostgresClient outsider(pooler.url());
  expect_error(ErrorCode::rate_limited, [&] { (void)open_with_long_timeout(pooler.url()).is_locked("key"); });
}

// If each connection ran on the strand of the connection that it replaces, work would go through more and more strands.
TEST_F(PostgresConnections, ReplacedConnectionsDoNotBecomeSlower) {
  asio::io_context context;
  const auto work = asio::make_work_guard(context);
  const auto pool =
      std::make_shared<postgres::Pool>(PostgresOptions{.connection = server.url(), .pool = 1, .connect_timeout = 60s});
  std::optional<postgres::Pool::Pooled> pooled;
  const auto take = [&] {
    const CallLimits limits{{}, std::chrono::steady_clock::now() + 60s};
    asio::co_spawn(context, pool->take(limits), [&](const std::exception_ptr& error, postgres::Pool::Pooled taken) {
      if (error) std::rethrow_exception(error);
      pooled = std::move(taken);
    });
  };
  const auto wait = [&] {
    while (!pooled) context.run_one();
  };
  const auto time_of_posts = [&](const asio::any_io_executor& executor) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 2000; ++i) {
      asio::post(executor, [] {});
      context.poll();
    }
    return std::chrono::steady_clock::now() - start;
  };
  take();
  wait();
  for (int i = 0; i < 200; ++i) {
    auto old = std::move(*pooled);
    pooled.reset();
    take();
    // This call waits: the pool has only one connection.
    context.poll();
    old.connection->close();
    pool->give_back(std::move(old));
    wait();
  }
  EXPECT_LT(time_of_posts(pooled->connection->executor()), 20 * time_of_posts(asio::make_strand(context)));
  pool->close();
}

// The caller's thread reads them. See docs/adr/0019-blocking-callers-work-themselves.md.
TEST_F(PostgresConnections, RepliesToABlockingCallerDoNotWakeTheIoThread) {
  auto locks = client();
  // A background renewal makes the I/O thread watch the connection.
  auto renewed = locks.acquire("renewed", {.ttl = 1s, .auto_extend = true});
  const auto before_renewal = renewed.expires_at();
  ASSERT_TRUE(eventually([&] { return renewed.expires_at() > before_renewal; }));
  EXPECT_TRUE(renewed.release());
  const auto sleeps = sleeps_of_threads_named("syncguard-io");
  ASSERT_GT(sleeps, 0U);
  constexpr int cycles = 200;
  for (int i = 0; i < cycles; ++i) (void)locks.acquire("key");
  EXPECT_LT(sleeps_of_threads_named("syncguard-io") - sleeps, cycles / 2);
}

TEST_F(PostgresConnections, ConnectionsHaveAMaximumAge) {
  auto locks = client("&max_connection_lifetime=1s");
  const auto pids = [&] {
    (void)locks.is_locked("key");
    return server.execute("SELECT string_agg(pid::text, ',') FROM pg_stat_activity WHERE application_name = 'test'");
  };
  const auto first = pids();
  EXPECT_TRUE(eventually([&] {
    const auto now = pids();
    return !now.empty() && now.find(first) == std::string::npos;
  }));
}

TEST_F(PostgresConnections, IdleConnectionsAreClosed) {
  auto locks = client("&max_idle_time=500ms&operation_timeout=20s");
  PostgresClient outsider(server);
  outsider("BEGIN; SELECT pg_advisory_xact_lock(hashtext('key'))");
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i) threads.emplace_back([&] { (void)locks.try_acquire("key"); });
  EXPECT_TRUE(eventually([&] { return connections("wait_event_type = 'Lock'") == 5; }));
  outsider("COMMIT");
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(eventually([&] { return connections() == 0; }))
      << "idle connections must be closed even if no operation runs";
  EXPECT_FALSE(locks.is_locked("key")) << "a new connection must be opened";
}

TEST_F(PostgresConnections, TcpKeepAliveIsOn) {
  const CountingProxy proxy(server.port());
  auto holder = client();
  auto waiter = open_with_long_timeout("postgres://postgres@127.0.0.1:" + std::to_string(proxy.port()) + "/postgres");
  auto lease = holder.acquire("key");
  std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", patient)); });
  EXPECT_TRUE(eventually([&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters") == "1"; }));
  const auto found = tcp_connections_to(proxy.port());
  EXPECT_GE(found.size(), 2U) << "one of the pool, and one that listens";
  for (const auto& connection : found) {
    EXPECT_TRUE(connection.keep_alive);
    EXPECT_EQ(connection.idle, 30s);
    EXPECT_EQ(connection.user_timeout, 60s);
  }
  EXPECT_TRUE(lease.release());
  waiting.join();
}

TEST_F(PostgresConnections, MetricsCountConnections) {
  expect_connections_are_counted(server.url(), [&] {
    EXPECT_TRUE(eventually([&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters") == "1"; }));
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// Failover, and servers that hang

TEST_F(PostgresConnections, ConnectionsToAReadOnlyServerAreReplaced) {
  make_role(20);
  // New sessions are read-only, like those to a former primary.
  server.execute("ALTER ROLE limited SET default_transaction_read_only = on");
  auto locks = open_with_long_timeout(server.url_of("limited", "?listen_url=off"));
  expect_error(ErrorCode::service_unavailable, [&] { (void)locks.try_acquire("key"); });
  server.execute("ALTER ROLE limited RESET default_transaction_read_only");
  EXPECT_TRUE(locks.try_acquire("key"));
}

TEST_F(PostgresConnections, PrimaryIsUsedAmongSeveralHosts) {
  const PostgresServer standby({.configuration = {"default_transaction_read_only = on"}});
  auto locks = open_with_long_timeout("postgres://postgres@127.0.0.1:" + std::to_string(standby.port()) +
                                      ",127.0.0.1:" + std::to_string(server.port()) + "/postgres");
  EXPECT_TRUE(locks.try_acquire("key"));
}

// Calls that are blocked on the server by an advisory lock, until they are stopped.
class BlockedCalls {
 public:
  BlockedCalls(const PostgresServer& server, std::vector<Locks> clients, int calls_per_client)
      : server_(server), outsider_(server), clients_(std::move(clients)) {
    outsider_("BEGIN; SELECT pg_advisory_xact_lock(hashtext('key'))");
    for (auto& locks : clients_) {
      for (int i = 0; i < calls_per_client; ++i) {
        threads_.emplace_back([&] { (void)error_of([&] { (void)locks.try_acquire("key", {}, stop_.get_token()); }); });
      }
    }
    EXPECT_TRUE(eventually([&] { return blocked() == std::ssize(threads_); }));
  }
  void stop() {
    stop_.request_stop();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }
  [[nodiscard]] int blocked() const {
    return std::stoi(server_.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"));
  }
  ~BlockedCalls() { stop(); }
  BlockedCalls(const BlockedCalls&) = delete;
  BlockedCalls& operator=(const BlockedCalls&) = delete;

 private:
  const PostgresServer& server_;
  PostgresClient outsider_;
  std::vector<Locks> clients_;
  std::stop_source stop_;
  std::vector<std::thread> threads_;
};

// The threads of this process that connect to PostgreSQL, or cancel a request there.
std::size_t postgres_threads() { return threads_named("syncguard-pg"); }

TEST_F(PostgresConnections, CancelingOnHungServerNeedsFewThreads) {
  std::vector<Locks> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(client("&operation_timeout=8s&listen_url=off&pool=10"));
  BlockedCalls calls(server, clients, 10);
  server.pause();
  calls.stop();
  EXPECT_TRUE(eventually([&] { return postgres_threads() == 4; })) << postgres_threads();
  // Long enough for several attempts to cancel.
  std::this_thread::sleep_for(1500ms);
  EXPECT_EQ(postgres_threads(), 4);
  server.resume();
  EXPECT_TRUE(eventually([&] { return postgres_threads() == 0 && calls.blocked() == 0; }));
  EXPECT_FALSE(clients.front().is_locked("key"));
}

TEST_F(PostgresConnections, HungServerDoesNotPreventCancelingOnTheNextHost) {
  const PostgresServer next;
  setup_postgres_schema({.connection = next.url()});
  auto locks = open("postgres://postgres@127.0.0.1:" + std::to_string(server.port()) +
                    ",127.0.0.1:" + std::to_string(next.port()) +
                    "/postgres?operation_timeout=10m&listen_url=off&pool=20&connect_timeout=2s");
  BlockedCalls calls(server, {locks}, 10);
  // A call on an idle connection would not notice that the server hangs.
  server.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE state = 'idle'");
  server.pause();
  calls.stop();
  EXPECT_TRUE(eventually([&] { return postgres_threads() >= 4; }));
  {
    BlockedCalls calls_to_next(next, {locks}, 1);
    calls_to_next.stop();
    EXPECT_TRUE(eventually([&] { return calls_to_next.blocked() == 0; }))
        << "the statement must be canceled before its timeout of 10 minutes";
  }
  server.resume();
  EXPECT_TRUE(eventually([&] { return calls.blocked() == 0; }));
}

// ---------------------------------------------------------------------------------------------------------------------
// Configuration errors

TEST_F(PostgresConnections, InvalidOptionsAreRejected) {
  const auto port = std::to_string(server.port());
  for (const std::string& url :
       {server.url("?sslmode=bogus"), server.url("?sslmode=require"),
        "postgres://postgres@/postgres?host=127.0.0.1&port=" + port + "," + port + "," + port}) {
    const auto error = error_of([&] { (void)open_with_long_timeout(url).is_locked("key"); });
    ASSERT_TRUE(error) << url;
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument) << url << ": " << error->what();
    EXPECT_FALSE(error->retryable());
    // The message names the reason: the server of this test has no TLS.
    if (url.ends_with("sslmode=require")) {
      EXPECT_THAT(core::message_with_causes(*error), HasSubstr("SSL"));
    }
  }
}

TEST_F(PostgresConnections, NonUtf8DatabaseIsReported) {
  server.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
  const auto url = "postgres://postgres@127.0.0.1:" + std::to_string(server.port()) + "/latin";
  setup_postgres_schema({.connection = url});
  auto locks = open_with_long_timeout(url);
  EXPECT_TRUE(locks.try_acquire("plain"));
  const auto error = error_of([&] { (void)locks.try_acquire("\u30ed\u30c3\u30af"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), HasSubstr("encoding"));
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "encoding"), ::testing::StartsWith("failure: LATIN1"));
}

// ---------------------------------------------------------------------------------------------------------------------
// Setup of existing tables, and a full notification queue

TEST_F(PostgresConnections, SetupOfCompleteSchemaTakesNoLock) {
  PostgresClient outsider(server);
  outsider(
      "BEGIN; LOCK TABLE syncguard_locks, syncguard_fence_counters, syncguard_locks_waiters IN ROW EXCLUSIVE MODE");
  EXPECT_FALSE(error_of([&] { setup_postgres_schema({.connection = server.url()}); }));
  outsider("COMMIT");
}

TEST_F(PostgresConnections, SetupOfCompleteSchemaNeedsNoCreatePrivilege) {
  make_role(20);
  EXPECT_FALSE(error_of([&] { setup_postgres_schema({.connection = server.url_of("limited")}); }));
}

TEST_F(PostgresConnections, ReleaseWorksIfNotificationsFail) {
  auto holder = client();
  auto waiter = client();
  auto lease = holder.acquire("key");
  std::thread waiting([&] { EXPECT_TRUE(waiter.acquire("key", {.wait = {.timeout = 60s, .retry_delay = 100ms}})); });
  EXPECT_TRUE(eventually([&] { return server.execute("SELECT count(*) FROM syncguard_locks_waiters") == "1"; }));
  // Fails at commit, like a full notification queue. Filling a real one takes 8 GB.
  server.execute(
      "CREATE FUNCTION full_queue() RETURNS trigger LANGUAGE plpgsql AS "
      "$$ BEGIN IF NEW.turn_until_ms IS NOT NULL THEN RAISE 'too many notifications' USING ERRCODE = '54000'; END IF; "
      "RETURN NULL; END $$; "
      "CREATE CONSTRAINT TRIGGER full_queue AFTER UPDATE ON syncguard_locks_waiters DEFERRABLE INITIALLY DEFERRED "
      "FOR EACH ROW EXECUTE FUNCTION full_queue()");
  EXPECT_TRUE(lease.release());
  waiting.join();
}

}  // namespace
}  // namespace syncguard::testing
