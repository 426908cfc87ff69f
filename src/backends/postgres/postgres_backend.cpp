#include "async/run_aside.hpp"
#include "backends/postgres/diagnosis.hpp"
#include "backends/postgres/server.hpp"
#include "backends/postgres/server_error.hpp"
#include "core/bounded.hpp"
#include "core/cleanup_pace.hpp"
#include "core/fence_limit.hpp"
#include "core/reservation.hpp"
#include "core/storage_key.hpp"
#include "postgres_sql.hpp"

#include <syncguard/postgres.hpp>

#include <asio/this_coro.hpp>

#include <libpq-fe.h>

#include <utility>

namespace syncguard {
namespace {

using postgres::Rows;
using postgres::Server;
using postgres::Statements;
using std::chrono::milliseconds;
using Steps = std::vector<postgres::Statement>;

constexpr core::StorageLimit storage_limit{.limit = 1700, .reserve = 0};

std::string lock_key_of(const Key& key) { return core::lock_storage_key("", key, storage_limit); }

Timestamp time_at(const Rows& rows, int column) { return Timestamp(milliseconds(rows.number(0, column))); }
milliseconds duration_at(const Rows& rows, int column) { return milliseconds(rows.number(0, column)); }
std::string text_of(milliseconds duration) { return std::to_string(duration.count()); }

// Of a row that somebody else may have written.
[[noreturn]] void refuse_foreign() {
  throw LockError(ErrorCode::internal, "the table holds something at this key that is no lock");
}

Fence fence_of(const std::string& text) {
  try {
    return Fence::parse(text);
  } catch (const LockError&) {
    refuse_foreign();
  }
}

std::optional<LockRecord> record_of(const Rows& rows) {
  if (rows.count() == 0) return std::nullopt;
  try {
    return LockRecord{.key = rows.text(0, 0),
                      .lock_id = LockId(rows.text(0, 1)),
                      .expires_at = time_at(rows, 2),
                      .acquired_at = time_at(rows, 3),
                      .fence = Fence::parse(rows.text(0, 4))};
  } catch (const LockError&) {
    refuse_foreign();
  }
}

constexpr int yes = 1;
constexpr int expired = -2;
constexpr int counter_at_end = -4;

Missing missing(std::int64_t verdict) { return verdict == expired ? Missing::expired : Missing::not_found; }

Server::Steps steps_of_leaving(std::string key, const LockId& waiter) {
  return [key = std::move(key), waiter](const Statements& sql) {
    return Steps{{.name = "lock_key", .sql = &sql.lock_key, .values = {key}},
                 {.name = "leave", .sql = &sql.leave, .values = {key, waiter.str()}}};
  };
}

class PostgresTicket : public WaitTicket {
 public:
  PostgresTicket(std::shared_ptr<Server> server, std::shared_ptr<postgres::Listener> listener, const Key& key,
                 const LockId& waiter, std::function<void()> wake)
      : server_(std::move(server)),
        listener_(std::move(listener)),
        key_(lock_key_of(key)),
        waiter_(waiter),
        wake_(std::move(wake)) {}
  ~PostgresTicket() override { listener_->remove(waiter_); }

  asio::awaitable<void> rejoin(const CallLimits& limits) override {
    co_await listener_->add(waiter_, wake_, limits);
    Server::Steps steps = [this](const Statements& sql) {
      return Steps{{.name = "clear_queue", .sql = &sql.clear_queue, .values = {key_}},
                   {.name = "join", .sql = &sql.join, .values = {key_, waiter_.str()}}};
    };
    co_await server_->run(std::move(steps), limits, &waiter_);
  }

  asio::awaitable<void> leave(const CallLimits& limits) override {
    listener_->remove(waiter_);
    auto steps = steps_of_leaving(key_, waiter_);
    co_await server_->run(std::move(steps), limits, &waiter_);
  }

 private:
  const std::shared_ptr<Server> server_;
  const std::shared_ptr<postgres::Listener> listener_;
  const std::string key_;
  const LockId waiter_;
  const std::function<void()> wake_;
};

class PostgresBackend : public Backend {
 public:
  PostgresBackend(PostgresOptions options, Log log)
      : server_(std::make_shared<Server>(std::move(options), std::move(log))) {}
  ~PostgresBackend() override { server_->close(); }

  [[nodiscard]] Capabilities capabilities() const override {
    return {.name = "postgres", .operation_timeout = server_->options().operation_timeout};
  }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    const auto key = lock_key_of(request.key);
    const auto fence_key = core::fence_storage_key("", key, storage_limit);
    Server::Steps steps = [&](const Statements& sql) {
      return Steps{{.name = "lock_key", .sql = &sql.lock_key, .values = {key}},
                   {.name = "acquire",
                    .sql = &sql.acquire,
                    .values = {key, request.lock_id.str(), text_of(request.ttl), fence_key, request.key.str()}}};
    };
    const Rows rows = co_await server_->run(std::move(steps), limits, &request.lock_id);
    // The queue is not asked again at once: somebody who does not know it was faster.
    if (rows.count() == 0) co_return Contended{core::reservation_time};
    const auto verdict = rows.number(0, 1);
    if (verdict == yes) co_return Granted{fence_of(rows.text(0, 2)), time_at(rows, 3), duration_at(rows, 4)};
    if (verdict == counter_at_end) throw core::counter_at_end();
    co_return Contended{duration_at(rows, 4)};
  }

  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    Server::Steps steps = [&](const Statements& sql) {
      return Steps{{.name = "lock_id", .sql = &sql.lock_id, .values = {id.str()}},
                   {.name = "release", .sql = &sql.release, .values = {id.str()}}};
    };
    const Rows rows = co_await server_->run(std::move(steps), limits, &id);
    const auto verdict = rows.number(0, 0);
    if (verdict == yes) co_return Released{};
    co_return missing(verdict);
  }

  asio::awaitable<ExtendReply> extend(const LockId& id, milliseconds ttl, const CallLimits& limits) override {
    Server::Steps steps = [&](const Statements& sql) {
      return Steps{{.name = "lock_id", .sql = &sql.lock_id, .values = {id.str()}},
                   {.name = "extend", .sql = &sql.extend, .values = {id.str(), text_of(ttl)}}};
    };
    const Rows rows = co_await server_->run(std::move(steps), limits, &id);
    const auto verdict = rows.number(0, 0);
    if (verdict == yes) co_return Extended{time_at(rows, 1), duration_at(rows, 2)};
    co_return missing(verdict);
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    const auto record = co_await lookup(key, limits);
    if (!record && server_->options().cleanup_in_is_locked &&
        cleanup_pace_.may_clean_up(std::chrono::steady_clock::now())) {
      Server::Steps steps = [stored = lock_key_of(key)](const Statements& sql) {
        return Steps{{.name = "lock_key", .sql = &sql.lock_key, .values = {stored}},
                     {.name = "remove_dead", .sql = &sql.remove_dead, .values = {stored}}};
      };
      const auto executor = co_await asio::this_coro::executor;
      server_->run_in_background(executor, std::move(steps), std::nullopt);
    }
    co_return record.has_value();
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    const auto stored = lock_key_of(key);
    Server::Steps steps = [&](const Statements& sql) {
      return Steps{{.name = "lookup_key", .sql = &sql.lookup_key, .values = {stored}}};
    };
    co_return record_of(co_await server_->run(std::move(steps), limits));
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    Server::Steps steps = [&](const Statements& sql) {
      return Steps{{.name = "lookup_id", .sql = &sql.lookup_id, .values = {id.str()}}};
    };
    co_return record_of(co_await server_->run(std::move(steps), limits));
  }

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const Key& key, const LockId& waiter, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    const auto executor = co_await asio::this_coro::executor;
    auto listener = co_await server_->listener(limits);
    if (!listener) co_return nullptr;
    auto ticket = std::make_unique<PostgresTicket>(server_, std::move(listener), key, waiter, std::move(wake));
    try {
      co_await ticket->rejoin(limits);
    } catch (const LockError&) {
      // It may have got its place all the same, and nobody would give that up.
      server_->run_in_background(executor, steps_of_leaving(lock_key_of(key), waiter), waiter);
      throw;
    }
    co_return ticket;
  }

  asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& limits) override {
    postgres::Examiner examiner;
    examiner.ask = [&](std::string name, std::string sql, std::vector<std::string> values) {
      return server_->ask(std::move(name), std::move(sql), std::move(values), limits);
    };
    examiner.listener = [&] { return server_->listener(limits); };
    examiner.limits = limits;
    co_return co_await postgres::diagnose(std::move(examiner), server_->options(), server_->tables());
  }

  asio::awaitable<std::string> setup(const CallLimits& limits) override {
    const auto& tables = server_->tables();
    std::string name = "tables";
    std::string sql(postgres::sql::tables);
    std::vector<std::string> values = {tables.locks(), tables.counters(), tables.waiters()};
    const Rows before = co_await server_->ask(std::move(name), std::move(sql), std::move(values), limits);
    const bool complete = before.text(0, 0) == "t" && before.text(0, 1) == "t" && before.text(0, 2) == "t";
    co_await set_up_schema(server_->options(), limits);
    co_return complete ? "the tables were there already; indexes that were missing were made"
                       : "the tables were made: " + tables.locks() + ", " + tables.counters() + ", " + tables.waiters();
  }

  asio::awaitable<void> close(const CallLimits& /*limits*/) override {
    server_->close();
    co_return;
  }

 private:
  static asio::awaitable<void> set_up_schema(const PostgresOptions& options, const CallLimits& limits) {
    std::function<bool()> set_up = [options] {
      setup_postgres_schema(options);
      return true;
    };
    co_await async::run_aside("syncguard-pg", std::move(set_up), limits, "the tables could not be made in time",
                              Effect::in_doubt);
  }

  const std::shared_ptr<Server> server_;
  core::CleanupPace cleanup_pace_;
};

void validate(const PostgresOptions& options) {
  const auto refuse = [](const char* message) { throw LockError(ErrorCode::invalid_argument, message); };
  const auto understood = [](const std::string& connection) {
    if (connection.find("://") == std::string::npos && connection.find('=') == std::string::npos)
      return connection.empty();
    char* words = nullptr;
    const std::unique_ptr<PQconninfoOption, void (*)(PQconninfoOption*)> parsed(
        PQconninfoParse(connection.c_str(), &words), PQconninfoFree);
    // Not what it says: that may repeat a password.
    PQfreemem(words);
    return parsed != nullptr;
  };
  if (!understood(options.connection)) refuse("libpq does not understand this URL, or one of its options");
  if (options.listen_url != "off" && !understood(options.listen_url)) refuse("libpq does not understand listen_url");
  if (options.pool == 0) refuse("pool must be positive");
  if (options.connect_timeout <= milliseconds(0)) refuse("connect_timeout must be positive");
  if (options.operation_timeout <= milliseconds(0)) refuse("operation_timeout must be positive");
}

}  // namespace

std::unique_ptr<Backend> make_postgres_backend(PostgresOptions options, Log log) {
  validate(options);
  options.connect_timeout = core::bounded(options.connect_timeout);
  options.operation_timeout = core::bounded(options.operation_timeout);
  return std::make_unique<PostgresBackend>(std::move(options), std::move(log));
}

std::string postgres_schema(const PostgresOptions& options) {
  return postgres::Tables(options.table, options.fence_table).in(postgres::sql::schema);
}

void setup_postgres_schema(const PostgresOptions& options) {
  validate(options);
  // Processes that create the same table at the same time get in each other's way, "if not exists" or not.
  const auto script =
      "BEGIN; SET LOCAL lock_timeout = '10s'; SELECT pg_advisory_xact_lock(hashtext('syncguard setup'));\n" +
      postgres_schema(options) + "COMMIT;";
  const std::unique_ptr<PGconn, void (*)(PGconn*)> connection(
      postgres::connect_blocking(options.connection, core::bounded(options.connect_timeout)), PQfinish);
  if (PQstatus(connection.get()) != CONNECTION_OK) throw postgres::connect_error(PQerrorMessage(connection.get()));
  PQsetNoticeProcessor(
      connection.get(), [](void*, const char*) {}, nullptr);
  const std::unique_ptr<PGresult, void (*)(PGresult*)> result(PQexec(connection.get(), script.c_str()), PQclear);
  if (PQresultStatus(result.get()) == PGRES_COMMAND_OK) return;
  const char* field = PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
  const std::string_view sqlstate = field != nullptr ? field : "08000";
  const auto error = postgres::server_error(sqlstate, PQresultErrorMessage(result.get()));
  if (sqlstate == "42501") {
    throw LockError(
        ErrorCode::auth_failed,
        "this user may not create the tables that locks need; let one who may run this:\n" + postgres_schema(options),
        Effect::none, error.context());
  }
  if (sqlstate == "3F000") {
    throw LockError(ErrorCode::invalid_argument, "the schema of the tables is not there: create it first", Effect::none,
                    error.context());
  }
  throw LockError(error);
}

}  // namespace syncguard
