#include "backends/postgres/server.hpp"

#include "async/spawn.hpp"
#include "async/thread.hpp"
#include "postgres_sql.hpp"

#include <asio/co_spawn.hpp>
#include <asio/post.hpp>
#include <asio/this_coro.hpp>

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
      pool_(options_.connection, options_) {
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
  auto pooled = co_await pool_.take(limits);
  const auto sql_text = std::make_shared<std::string>(sql::tables);
  std::vector<Statement> look = {
      {.name = "tables", .sql = sql_text.get(), .values = {tables_.locks(), tables_.counters(), tables_.waiters()}}};
  const Rows rows = co_await exchange(std::move(pooled), std::move(look), sql_text, limits, nullptr);
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
  const bool queues = there(2) && listener_ != nullptr;
  const std::lock_guard lock(mutex_);
  statements_ =
      std::make_shared<const Statements>(tables_, queues ? Statements::Queue::exists : Statements::Queue::none);
  if (!queues) listener_.reset();
  co_return statements_;
}

asio::awaitable<std::shared_ptr<Listener>> Server::listener(CallLimits limits) {
  co_await statements(limits);
  co_return listener_;
}

asio::awaitable<Rows> Server::run(Steps steps, CallLimits limits, const LockId* id) {
  if (limits.stop.stop_requested()) throw LockError(ErrorCode::aborted, "a stop was requested");
  if (id != nullptr) co_await wait_for_what_is_under_way(*id, limits);
  const auto known = co_await statements(limits);
  auto pooled = co_await pool_.take(limits);
  std::vector<Statement> transaction = {
      {.name = "begin", .sql = &known->begin},
      {.name = "settings", .sql = &known->settings, .values = {milliseconds_until(limits.deadline)}}};
  for (auto& step : steps(*known)) transaction.push_back(std::move(step));
  transaction.push_back({.name = "commit", .sql = &known->commit});
  co_return co_await exchange(std::move(pooled), std::move(transaction), known, limits, id);
}

void Server::run_in_background(const asio::any_io_executor& executor, Steps steps) {
  auto work = [](std::shared_ptr<Server> self, Steps to_do) -> asio::awaitable<void> {
    try {
      const CallLimits limits{{}, steady_clock::now() + self->options_.operation_timeout};
      (void)co_await self->run(std::move(to_do), limits);
    } catch (const LockError& error) {
      self->log_.debug(std::string("in the background: ") + error.what());
    }
  };
  async::spawn(executor, work(shared_from_this(), std::move(steps)));
}

asio::awaitable<Rows> Server::exchange(Pool::Pooled pooled, std::vector<Statement> statements,
                                       std::shared_ptr<const void> keeps_alive, CallLimits limits, const LockId* id) {
  const auto current = std::make_shared<Exchange>();
  current->pooled = std::move(pooled);
  current->statements = std::move(statements);
  current->keeps_alive = std::move(keeps_alive);
  asio::post(current->pooled.strand, [self = shared_from_this(), current] {
    const auto strand = current->pooled.strand;
    asio::co_spawn(strand, self->perform(current), [self](const std::exception_ptr& error) {
      if (error) std::terminate();
    });
  });
  const auto reason = co_await current->ended->wait(limits.deadline, limits.stop);
  {
    const std::lock_guard lock(current->mutex);
    if (!current->done) current->abandoned = true;
    if (current->done && current->error) std::rethrow_exception(current->error);
    if (current->done) co_return std::move(*current->rows);
  }
  if (id != nullptr) {
    const std::lock_guard lock(mutex_);
    abandoned_.insert_or_assign(*id, current);
  }
  cancel(current);
  if (reason == async::WakeUp::Reason::stopped) {
    throw LockError(ErrorCode::aborted, "a stop was requested", Effect::in_doubt);
  }
  throw LockError(ErrorCode::network_timeout, "PostgreSQL did not answer in time", Effect::in_doubt);
}

// On the connection's strand.
asio::awaitable<void> Server::perform(std::shared_ptr<Exchange> current) {
  std::optional<Rows> rows;
  std::exception_ptr error;
  try {
    rows.emplace(co_await current->pooled.connection->run(current->statements));
  } catch (const LockError&) {
    error = std::current_exception();
  } catch (const std::exception&) {
    error = std::make_exception_ptr(LockError(ErrorCode::internal, "talking to PostgreSQL failed unexpectedly",
                                              Effect::in_doubt, {.cause = std::current_exception()}));
  }
  bool abandoned = false;
  std::vector<std::shared_ptr<async::WakeUp>> waiting;
  {
    const std::lock_guard lock(current->mutex);
    current->done = true;
    current->rows = std::move(rows);
    current->error = error;
    abandoned = current->abandoned;
    waiting = std::exchange(current->waiting_for_the_end, {});
  }
  // One that was cancelled is not used again: the cancelling may come late, and hit somebody else.
  if (!abandoned) pool_.give_back(std::move(current->pooled));
  current->ended->wake();
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(abandoned_, [&](const auto& entry) { return entry.second == current; });
  }
  for (const auto& wake_up : waiting) wake_up->wake();
}

// Closing the connection would end nothing: a COMMIT that was sent is still carried out.
void Server::cancel(const std::shared_ptr<Exchange>& current) {
  const auto strand = current->pooled.strand;
  try {
    async::start_thread("syncguard-pg", current->pooled.connection->canceller()).detach();
  } catch (const std::system_error&) {
    log_.debug("no thread could be started to cancel what PostgreSQL does");
  }
  auto give_up_on_silence = [](std::shared_ptr<Server> self, std::shared_ptr<Exchange> slow) -> asio::awaitable<void> {
    const auto end = std::make_shared<async::WakeUp>();
    bool done = false;
    {
      const std::lock_guard lock(slow->mutex);
      done = slow->done;
      if (!done) slow->waiting_for_the_end.push_back(end);
    }
    if (!done) co_await end->wait(steady_clock::now() + longest_drain, {});
    slow->pooled.connection->close();
    // Its place is free again.
    self->pool_.give_back(std::move(slow->pooled));
  };
  asio::post(strand, [self = shared_from_this(), current, strand, give_up_on_silence] {
    asio::co_spawn(strand, give_up_on_silence(self, current), [self](const std::exception_ptr& error) {
      if (error) std::terminate();
    });
  });
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
  switch (co_await end->wait(limits.deadline, limits.stop)) {
    case async::WakeUp::Reason::stopped:
      throw LockError(ErrorCode::aborted, "a stop was requested");
    case async::WakeUp::Reason::timed_out:
      throw LockError(ErrorCode::network_timeout, "an earlier operation of the same lock id is still under way");
    case async::WakeUp::Reason::woken:
      break;
  }
}

void Server::close() {
  pool_.close();
  if (listener_) listener_->close();
}

}  // namespace syncguard::postgres
