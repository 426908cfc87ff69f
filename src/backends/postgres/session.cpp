#include "backends/postgres/session.hpp"

#include "async/event.hpp"
#include "async/spawn.hpp"
#include "backends/verdict.hpp"
#include "postgres_sql.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <system_error>
#include <utility>

namespace syncguard::postgres {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long before the caller's deadline the server gives up, so that its error arrives in time. While it waits for a
// lock, it gives up even earlier, so that the error says so.
constexpr milliseconds server_timeout_margin{20};
constexpr milliseconds lock_timeout_margin{40};
// How long a server may take to end a canceled request before its connection is closed.
constexpr std::chrono::seconds max_drain{10};
constexpr milliseconds cancel_interval{250};
// How often a client without functions checks whether setup has installed them.
constexpr std::chrono::minutes function_check_interval{1};
// Turns are announced to all clients, so waiters look only for what they may have missed. A look takes the server about
// twenty microseconds.
constexpr backends::Waiters::Pace pace{
    .shortest = milliseconds(700), .longest = milliseconds(1000), .per_look = std::chrono::microseconds(400)};
constexpr std::size_t max_looks = 64;

std::string milliseconds_until(steady_clock::time_point deadline, milliseconds earlier) {
  const auto left = std::chrono::floor<milliseconds>(deadline - steady_clock::now()) - earlier;
  // For PostgreSQL, zero means no limit, and the value must fit into an int.
  constexpr std::int64_t max_milliseconds = 1'000'000'000;
  return std::to_string(std::clamp<std::int64_t>(left.count(), 1, max_milliseconds));
}

}  // namespace

struct Session::Transaction {
  Pool::Pooled pooled{};
  std::vector<Statement> statements{};
  // Owns the texts of the statements.
  std::shared_ptr<const void> keeps_alive{};
};

// One pending transaction. Lives until the server has replied, even if no caller waits anymore.
struct Session::Pending : Transaction {
  const async::Promise<Rows> reply{};

  // Guarded by the session's mutex.
  bool ended = false;
  bool abandoned = false;
};

Session::Session(PostgresOptions options, Log log)
    : options_(std::move(options)),
      log_(std::move(log)),
      names_(options_.table, options_.fence_table),
      pool_(std::make_shared<Pool>(options_)),
      looks_(std::make_shared<backends::LookLoop>(pace, max_looks)) {
  if (options_.listen_url != "off") {
    wake_listener_ = std::make_shared<WakeListener>(
        ConnectOptions{.connection = options_.listen_url.empty() ? options_.connection : options_.listen_url,
                       .timeout = options_.connect_timeout,
                       .password = options_.password_callback},
        looks_);
  }
}

std::shared_ptr<const Statements> Session::known_statements() {
  const std::lock_guard lock(mutex_);
  const bool is_current = statements_ && (statements_->functions || steady_clock::now() < next_function_check_);
  return is_current ? statements_ : nullptr;
}

// Runs once per client, and again after tables were missing. All connections of the client then use the same tables,
// regardless of their search paths.
asio::awaitable<std::shared_ptr<const Statements>> Session::check_tables(CallLimits limits) {
  std::optional<FoundTables> found;
  auto functions = FoundFunctions::missing;
  std::optional<Tables> resolved;
  try {
    found = co_await find_tables(limits);
    if (!found->locks || !found->counters) {
      std::string missing;
      if (!found->locks) missing += names_.locks();
      if (!found->counters) missing += (missing.empty() ? "" : " and ") + names_.counters();
      const bool both = !found->locks && !found->counters;
      throw LockError(ErrorCode::invalid_argument,
                      missing + (both ? " do" : " does") +
                          " not exist: run setup_postgres_schema or `syncguard setup`, or name the tables");
    }
    resolved = names_.in_schemas(found->locks->schema, found->counters->schema);
    if (found->suit_functions()) functions = co_await find_functions(*resolved, *found, limits);
  } catch (const LockError& error) {
    // The caller's own request was not sent yet.
    throw error.as_no_effect();
  }
  auto known = std::make_shared<const Statements>(std::move(*resolved), *found, functions);
  const std::lock_guard lock(mutex_);
  statements_ = known;
  next_function_check_ = steady_clock::now() + function_check_interval;
  co_return known;
}

void Session::forget_tables() {
  const std::lock_guard lock(mutex_);
  statements_.reset();
}

asio::awaitable<FoundTables> Session::find_tables(CallLimits limits) {
  std::string sql(sql::tables);
  const auto& locks = names_.locks_name();
  const auto& counters = names_.counters_name();
  std::vector<std::string> values = {locks.schema, locks.table, counters.schema, counters.table};
  const Rows rows = co_await ask(std::move(sql), std::move(values), limits);
  co_return postgres::find_tables(names_, rows);
}

asio::awaitable<FoundFunctions> Session::find_functions(const Tables& resolved, const FoundTables& found,
                                                        CallLimits limits) {
  std::string sql(sql::functions);
  const auto functions = resolved.functions();
  Values signatures;
  for (const auto* function : functions.all()) signatures.push_back(function->signature);
  Values values = {found.locks->owner, array_of(signatures)};
  const Rows rows = co_await ask(std::move(sql), std::move(values), limits);
  co_return postgres::find_functions(rows);
}

asio::awaitable<std::shared_ptr<WakeListener>> Session::wake_listener(CallLimits limits) {
  auto known = known_statements();
  if (!known) known = co_await check_tables(limits);
  co_return known->functions ? wake_listener_ : nullptr;
}

asio::awaitable<Rows> Session::run(const Operation& operation, Values values, CallLimits limits, const LockId* id) {
  async::expect_no_stop(limits.stop);
  if (id != nullptr) {
    if (const auto earlier = abandoned_with(*id)) {
      co_await earlier->reply.ready().wait(limits, "an earlier operation with the same lock id is still pending");
    }
  }
  auto known = known_statements();
  if (!known) known = co_await check_tables(limits);
  for (;;) {
    const bool is_call = operation.function != nullptr && known->functions;
    if (!is_call && operation.statement == nullptr) {
      throw LockError(ErrorCode::invalid_argument,
                      "the functions of the queue cannot be called: run `syncguard doctor`");
    }
    const bool sets_isolation = sets_isolation_;
    std::optional<LockError> refusal;
    try {
      Transaction transaction;
      transaction.pooled = co_await pool_->take(limits);
      transaction.statements = statements_of(operation, values, *known, limits);
      transaction.keeps_alive = known;
      const auto sent_at = steady_clock::now();
      Rows rows = co_await exchange(std::move(transaction), limits, id);
      if (operation.is_round_trip) round_trip_.measured(steady_clock::now() - sent_at);
      constexpr auto wrong_isolation = static_cast<std::int64_t>(backends::Verdict::wrong_isolation);
      if (!is_call || rows.count() == 0 || rows.number(0, 0) != wrong_isolation) co_return rows;
      if (sets_isolation)
        throw LockError(ErrorCode::internal, "PostgreSQL does not run transactions as READ COMMITTED");
      sets_isolation_ = true;
      continue;
    } catch (const LockError& error) {
      const bool is_refusal = error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::auth_failed;
      if (!is_refusal || error.in_doubt()) throw;
      // A table or a function may have been dropped.
      forget_tables();
      if (!is_call) throw;
      refusal = error;
    }
    known = co_await check_tables(limits);
    if (known->functions) throw LockError(*refusal);
  }
}

std::vector<Statement> Session::statements_of(const Operation& operation, const Values& values, const Statements& known,
                                              const CallLimits& limits) const {
  const auto* function =
      operation.function != nullptr && known.functions ? &((*known.functions).*operation.function) : nullptr;
  Values timeouts = {milliseconds_until(limits.deadline, lock_timeout_margin),
                     milliseconds_until(limits.deadline, server_timeout_margin)};
  // The call of a function is a transaction of its own.
  const bool begins = function == nullptr || sets_isolation_;
  constexpr std::size_t most = 5;
  std::vector<Statement> statements;
  statements.reserve(most);
  if (begins) statements.push_back({.sql = &known.begin});
  statements.push_back({.sql = function != nullptr ? &known.timeouts : &known.settings,
                        .values = std::move(timeouts),
                        .is_prepared = function != nullptr});
  if (function != nullptr) {
    statements.push_back({.sql = &function->call, .values = values, .is_prepared = true});
  } else {
    if (operation.lock != nullptr) statements.push_back({.sql = &(known.*operation.lock), .values = {values.front()}});
    const auto used = std::span(values).subspan(operation.first_value);
    const auto first = used.first(std::min(used.size(), operation.value_count));
    statements.push_back({.sql = &(known.*operation.statement), .values = {first.begin(), first.end()}});
  }
  if (begins) statements.push_back({.sql = &known.commit});
  return statements;
}

void Session::run_in_background(const asio::any_io_executor& executor, const Operation& operation, Values values,
                                std::optional<LockId> id) {
  auto work = [](std::shared_ptr<Session> self, const Operation* to_do, Values with,
                 std::optional<LockId> of) -> asio::awaitable<void> {
    try {
      const CallLimits limits{{}, steady_clock::now() + self->options_.operation_timeout};
      (void)co_await self->run(*to_do, std::move(with), limits, of ? &*of : nullptr);
    } catch (const std::exception& error) {
      self->log_.debug(std::string("a background request failed: ") + error.what());
    }
  };
  async::spawn(executor, work(shared_from_this(), &operation, std::move(values), id));
}

asio::awaitable<Rows> Session::ask(std::string sql, std::vector<std::string> values, CallLimits limits) {
  async::expect_no_stop(limits.stop);
  struct Text {
    std::string sql;
    std::string begin{sql::begin};
    std::string remember{sql::remember_search_path};
    std::string pin{sql::pin_search_path};
    std::string commit{sql::commit};
  };
  const auto text = std::make_shared<const Text>(Text{std::move(sql)});
  Transaction transaction;
  transaction.pooled = co_await pool_->take(limits);
  transaction.keeps_alive = text;
  transaction.statements = {{.sql = &text->begin},
                            {.sql = &text->remember},
                            {.sql = &text->pin},
                            {.sql = &text->sql, .values = std::move(values)},
                            {.sql = &text->commit}};
  co_return co_await exchange(std::move(transaction), limits, nullptr);
}

asio::awaitable<Security> Session::security(CallLimits limits) {
  auto pooled = co_await pool_->take(limits);
  auto security = pooled.connection->security();
  pool_->give_back(std::move(pooled));
  co_return security;
}

asio::awaitable<Rows> Session::exchange(Transaction transaction, const CallLimits& limits, const LockId* id) {
  const auto begin = steady_clock::now();
  std::optional<Rows> rows;
  try {
    auto& connection = *transaction.pooled.connection;
    // Sent on this thread, so that the server can start before the connection's strand runs.
    connection.send(transaction.statements);
    // The thread of a blocking caller reads the reply itself: see docs/adr/0019-blocking-callers-work-themselves.md.
    if (limits.may_block()) rows = connection.receive_blocking(limits);
  } catch (...) {
    pool_->give_back(std::move(transaction.pooled));
    throw;
  }
  if (rows) {
    pool_->give_back(std::move(transaction.pooled));
    co_return std::move(*rows);
  }
  const auto pending = std::make_shared<Pending>(Pending{{std::move(transaction)}});
  asio::co_spawn(pending->pooled.connection->executor(), receive(pending),
                 [self = shared_from_this()](const std::exception_ptr& error) {
                   if (error) std::terminate();
                 });
  const auto& ready = pending->reply.ready();
  const auto result = co_await ready.wait(limits.deadline, limits.stop);
  bool gives_up = false;
  {
    const std::lock_guard lock(mutex_);
    gives_up = !pending->ended;
    pending->abandoned = gives_up;
    if (gives_up && id != nullptr) abandoned_.insert_or_assign(*id, pending);
  }
  if (gives_up) {
    cancel(pending, limits.deadline - begin);
    async::throw_ended(result, "timed out waiting for PostgreSQL", Effect::in_doubt);
  }
  // The reply has arrived, even if the wait above timed out a moment earlier. Returns immediately.
  (void)co_await ready.wait(steady_clock::time_point::max());
  co_return std::move(pending->reply.value());
}

// Runs on the connection's strand.
asio::awaitable<void> Session::receive(std::shared_ptr<Pending> pending) {
  std::optional<Rows> rows;
  std::exception_ptr error;
  try {
    rows.emplace(co_await pending->pooled.connection->receive(pending->statements));
  } catch (const LockError&) {
    error = std::current_exception();
  } catch (const std::exception&) {
    error = std::make_exception_ptr(LockError(ErrorCode::internal, "the request to PostgreSQL failed unexpectedly",
                                              Effect::in_doubt, {.cause = std::current_exception()}));
  }
  Pool::Pooled pooled;
  {
    const std::lock_guard lock(mutex_);
    pending->ended = true;
    // A canceled connection is not reused: a late cancel request could hit another operation.
    if (pending->abandoned) pending->pooled.connection->close();
    pooled = std::move(pending->pooled);
    std::erase_if(abandoned_, [&](const auto& entry) { return entry.second == pending; });
  }
  // Given back before the reply is delivered, so that the caller's next operation finds the connection.
  pool_->give_back(std::move(pooled));
  if (rows) {
    pending->reply.set_value(std::move(*rows));
  } else {
    pending->reply.set_error(error);
  }
}

// Closing the connection would not stop the transaction: the server still executes a COMMIT that was sent. A cancel
// request that arrives between two statements is ignored, so it is repeated.
void Session::cancel(const std::shared_ptr<Pending>& pending, steady_clock::duration timeout) {
  // Each statement may take as long as the whole operation.
  const auto end = steady_clock::now() + std::max<steady_clock::duration>(max_drain, 3 * timeout);
  auto cancel_until_done = [](std::shared_ptr<Session> self, std::shared_ptr<Pending> slow,
                              steady_clock::time_point until) -> asio::awaitable<void> {
    for (;;) {
      {
        const std::lock_guard lock(self->mutex_);
        if (slow->ended) co_return;
        if (steady_clock::now() >= until) {
          slow->pooled.connection->close();
          co_return;
        }
        try {
          slow->pooled.connection->request_cancel();
        } catch (const std::system_error&) {
          self->log_.debug("cannot start a thread to cancel the PostgreSQL request");
        }
      }
      (void)co_await slow->reply.ready().wait(steady_clock::now() + cancel_interval);
    }
  };
  asio::any_io_executor strand;
  {
    const std::lock_guard lock(mutex_);
    if (pending->ended) return;
    strand = pending->pooled.connection->executor();
  }
  async::spawn_on(strand, cancel_until_done(shared_from_this(), pending, end));
}

std::shared_ptr<Session::Pending> Session::abandoned_with(const LockId& id) {
  const std::lock_guard lock(mutex_);
  const auto found = abandoned_.find(id);
  return found != abandoned_.end() ? found->second : nullptr;
}

std::size_t Session::connections() const noexcept {
  return pool_->size() + (wake_listener_ && wake_listener_->is_connected() ? 1 : 0);
}

void Session::close() {
  pool_->close();
  looks_->close();
  if (wake_listener_) wake_listener_->close();
}

}  // namespace syncguard::postgres
