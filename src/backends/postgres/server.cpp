#include "backends/postgres/server.hpp"

#include "async/spawn.hpp"
#include "async/thread.hpp"
#include "async/wake_up.hpp"
#include "postgres_sql.hpp"

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

namespace syncguard::postgres {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How much earlier than its caller the server gives up, so that its answer is heard.
constexpr milliseconds head_start{20};
// How long a server has to end what it was told to cancel before the connection is given up.
constexpr std::chrono::seconds longest_drain{10};
constexpr milliseconds between_cancellings{250};

std::string milliseconds_until(steady_clock::time_point deadline) {
  const auto left = std::chrono::floor<milliseconds>(deadline - steady_clock::now()) - head_start;
  // PostgreSQL takes zero for no limit, and no more than an int.
  constexpr std::int64_t most = 1'000'000'000;
  return std::to_string(std::clamp<std::int64_t>(left.count(), 1, most));
}

}  // namespace

// One transaction under way. Lives until the server has answered, whoever still waits for that.
struct Server::Exchange {
  Pool::Pooled pooled;
  std::vector<Statement> statements;
  std::shared_ptr<const void> keeps_alive;
  const std::shared_ptr<async::WakeUp> ended = std::make_shared<async::WakeUp>();

  std::mutex mutex;
  bool started = false;
  bool done = false;
  bool abandoned = false;
  std::optional<Rows> rows{};
  std::exception_ptr error{};
  std::vector<std::shared_ptr<async::WakeUp>> waiting_for_the_end{};
};

Server::Server(PostgresOptions options, Log log)
    : options_(std::move(options)),
      log_(std::move(log)),
      tables_(options_.table, options_.fence_table),
      pool_(std::make_shared<Pool>(options_)) {
  if (options_.listen_url != "off") {
    listener_ = std::make_shared<Listener>(options_.listen_url.empty() ? options_.connection : options_.listen_url,
                                           options_.connect_timeout, tables_.in(sql::seen));
  }
}

asio::awaitable<std::shared_ptr<const Statements>> Server::statements(CallLimits limits) {
  {
    const std::lock_guard lock(mutex_);
    if (statements_) co_return statements_;
  }
  co_return co_await look_at_tables(limits);
}

// Once per client, and again after tables were missing.
asio::awaitable<std::shared_ptr<const Statements>> Server::look_at_tables(CallLimits limits) {
  auto pooled = co_await pool_->take(limits);
  const auto sql_text = std::make_shared<std::string>(sql::tables);
  std::vector<Statement> look = {
      {.name = "tables", .sql = sql_text.get(), .values = {tables_.locks(), tables_.counters(), tables_.waiters()}}};
  std::optional<Rows> answer;
  try {
    answer.emplace(co_await exchange(std::move(pooled), std::move(look), sql_text, limits, nullptr));
  } catch (const LockError& error) {
    // What the caller wants was not sent yet.
    throw error.without_doubt();
  }
  const Rows& rows = *answer;
  const auto there = [&](int column) { return rows.text(0, column) == "t"; };
  if (!there(0) || !there(1)) {
    std::string missing;
    if (!there(0)) missing += tables_.locks();
    if (!there(1)) missing += (missing.empty() ? "" : " and ") + tables_.counters();
    throw LockError(ErrorCode::invalid_argument,
                    missing + " not there: run setup_postgres_schema or `syncguard setup`, or name the tables");
  }
  if (!there(3)) {
    throw LockError(ErrorCode::invalid_argument, "table and fence_table are the same table: fences would be lost");
  }
  const std::lock_guard lock(mutex_);
  statements_ =
      std::make_shared<const Statements>(tables_, there(2) ? Statements::Queue::exists : Statements::Queue::none);
  co_return statements_;
}

asio::awaitable<std::shared_ptr<Listener>> Server::listener(CallLimits limits) {
  const auto known = co_await statements(limits);
  co_return known->has_queue ? listener_ : nullptr;
}

asio::awaitable<Rows> Server::run(Steps steps, CallLimits limits, const LockId* id) {
  async::expect_no_stop(limits.stop);
  if (id != nullptr) co_await wait_for_what_is_under_way(*id, limits);
  const auto known = co_await statements(limits);
  auto pooled = co_await pool_->take(limits);
  std::vector<Statement> transaction = {
      {.name = "begin", .sql = &known->begin},
      {.name = "settings", .sql = &known->settings, .values = {milliseconds_until(limits.deadline)}}};
  for (auto& step : steps(*known)) transaction.push_back(std::move(step));
  transaction.push_back({.name = "commit", .sql = &known->commit});
  try {
    co_return co_await exchange(std::move(pooled), std::move(transaction), known, limits, id);
  } catch (const LockError& error) {
    if (error.code() == ErrorCode::invalid_argument) {
      // Perhaps a table is gone: the next operation looks again.
      const std::lock_guard lock(mutex_);
      statements_.reset();
    }
    throw;
  }
}

void Server::run_in_background(const asio::any_io_executor& executor, Steps steps, std::optional<LockId> id) {
  auto work = [](std::shared_ptr<Server> self, Steps to_do, std::optional<LockId> of) -> asio::awaitable<void> {
    try {
      const CallLimits limits{{}, steady_clock::now() + self->options_.operation_timeout};
      (void)co_await self->run(std::move(to_do), limits, of ? &*of : nullptr);
    } catch (const std::exception& error) {
      self->log_.debug(std::string("in the background: ") + error.what());
    }
  };
  async::spawn(executor, work(shared_from_this(), std::move(steps), id));
}

asio::awaitable<Rows> Server::ask(std::string name, std::string sql, std::vector<std::string> values,
                                  CallLimits limits) {
  async::expect_no_stop(limits.stop);
  auto pooled = co_await pool_->take(limits);
  struct Text {
    std::string name;
    std::string sql;
  };
  const auto text = std::make_shared<const Text>(Text{std::move(name), std::move(sql)});
  std::vector<Statement> statements = {{.name = text->name, .sql = &text->sql, .values = std::move(values)}};
  co_return co_await exchange(std::move(pooled), std::move(statements), text, limits, nullptr);
}

asio::awaitable<Rows> Server::exchange(Pool::Pooled pooled, std::vector<Statement> statements,
                                       std::shared_ptr<const void> keeps_alive, CallLimits limits, const LockId* id) {
  const auto begin = steady_clock::now();
  const auto current = std::make_shared<Exchange>();
  current->pooled = std::move(pooled);
  current->statements = std::move(statements);
  current->keeps_alive = std::move(keeps_alive);
  async::spawn_on(current->pooled.strand, perform(current), shared_from_this());
  const auto reason = co_await current->ended->wait(limits.deadline, limits.stop);
  Effect effect = Effect::none;
  {
    const std::scoped_lock lock(mutex_, current->mutex);
    if (current->done && current->error) std::rethrow_exception(current->error);
    if (current->done) co_return std::move(*current->rows);
    current->abandoned = true;
    effect = current->started ? Effect::in_doubt : Effect::none;
    if (id != nullptr) abandoned_.insert_or_assign(*id, current);
  }
  cancel(current, limits.deadline - begin);
  async::give_up(reason, "PostgreSQL did not answer in time", effect);
}

// On the connection's strand.
asio::awaitable<void> Server::perform(std::shared_ptr<Exchange> current) {
  std::optional<Rows> rows;
  std::exception_ptr error;
  bool wanted = false;
  {
    const std::lock_guard lock(current->mutex);
    wanted = current->started = !current->abandoned;
  }
  try {
    if (wanted) rows.emplace(co_await current->pooled.connection->run(current->statements));
  } catch (const LockError&) {
    error = std::current_exception();
  } catch (const std::exception&) {
    error = std::make_exception_ptr(LockError(ErrorCode::internal, "talking to PostgreSQL failed unexpectedly",
                                              Effect::in_doubt, {.cause = std::current_exception()}));
  }
  std::vector<std::shared_ptr<async::WakeUp>> waiting;
  Pool::Pooled pooled;
  {
    const std::scoped_lock lock(mutex_, current->mutex);
    current->done = true;
    current->rows = std::move(rows);
    current->error = error;
    waiting = std::exchange(current->waiting_for_the_end, {});
    // One that was cancelled is not used again: the cancelling may come late, and hit somebody else.
    if (current->abandoned && wanted) current->pooled.connection->close();
    pooled = std::move(current->pooled);
    std::erase_if(abandoned_, [&](const auto& entry) { return entry.second == current; });
  }
  pool_->give_back(std::move(pooled));
  current->ended->wake();
  for (const auto& wake_up : waiting) wake_up->wake();
}

// Closing the connection would end nothing: a COMMIT that was sent is still carried out. And a cancelling that comes
// between two statements is ignored, so that it is repeated.
void Server::cancel(const std::shared_ptr<Exchange>& current, steady_clock::duration timeout) {
  // Each statement has the time that the operation had.
  const auto end = steady_clock::now() + std::max<steady_clock::duration>(longest_drain, 3 * timeout);
  auto keep_cancelling = [](std::shared_ptr<Server> self, std::shared_ptr<Exchange> slow,
                            steady_clock::time_point until) -> asio::awaitable<void> {
    const auto at_the_end = std::make_shared<async::WakeUp>();
    {
      const std::lock_guard lock(slow->mutex);
      slow->waiting_for_the_end.push_back(at_the_end);
    }
    for (;;) {
      std::function<void()> canceller;
      {
        const std::lock_guard lock(slow->mutex);
        if (slow->done) co_return;
        canceller = slow->pooled.connection->canceller();
        if (steady_clock::now() >= until) {
          slow->pooled.connection->close();
          co_return;
        }
      }
      try {
        async::start_thread("syncguard-pg", canceller).detach();
      } catch (const std::system_error&) {
        self->log_.debug("no thread could be started to cancel what PostgreSQL does");
      }
      co_await at_the_end->wait(steady_clock::now() + between_cancellings, {});
    }
  };
  asio::any_io_executor strand;
  {
    const std::lock_guard lock(current->mutex);
    if (current->done) return;
    strand = current->pooled.strand;
  }
  async::spawn_on(strand, keep_cancelling(shared_from_this(), current, end));
}

asio::awaitable<void> Server::wait_for_what_is_under_way(const LockId& id, CallLimits limits) {
  const auto end = std::make_shared<async::WakeUp>();
  {
    const std::lock_guard lock(mutex_);
    const auto found = abandoned_.find(id);
    if (found == abandoned_.end()) co_return;
    const std::lock_guard exchange_lock(found->second->mutex);
    if (found->second->done) co_return;
    found->second->waiting_for_the_end.push_back(end);
  }
  const auto reason = co_await end->wait(limits.deadline, limits.stop);
  async::expect_woken(reason, "an earlier operation of the same lock id is still under way");
}

void Server::close() {
  pool_->close();
  if (listener_) listener_->close();
}

}  // namespace syncguard::postgres
