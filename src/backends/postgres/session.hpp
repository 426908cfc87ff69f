// One client's state for its server: connections, tables and pending operations.
#pragma once

#include "backends/look_loop.hpp"
#include "backends/postgres/pool.hpp"
#include "backends/postgres/statements.hpp"
#include "backends/postgres/wake_listener.hpp"
#include "core/reservation.hpp"

#include <syncguard/postgres.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace syncguard::postgres {

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(PostgresOptions options, Log log);

  [[nodiscard]] const PostgresOptions& options() const noexcept { return options_; }
  // The names in the options.
  [[nodiscard]] const Tables& names() const noexcept { return names_; }

  [[nodiscard]] const Log& log() const noexcept { return log_; }

  // Runs one transaction in one round trip. If the caller gives up (at its deadline or on a stop request), the
  // transaction is canceled in the background. No later request with the same lock id overtakes it. The first column of
  // what a function returns is a verdict (backends/verdict.hpp).
  asio::awaitable<Rows> run(const Operation& operation, Values values, CallLimits limits, const LockId* id = nullptr);
  // The same in the background.
  void run_in_background(const asio::any_io_executor& executor, const Operation& operation, Values values,
                         std::optional<LockId> id);
  // Runs one statement, even if the tables do not exist. Its search path is pg_catalog only. The setting
  // syncguard.search_path contains the user's search path.
  asio::awaitable<Rows> ask(std::string sql, std::vector<std::string> values, CallLimits limits);

  // The security of one of the connections.
  asio::awaitable<Security> security(CallLimits limits);
  // Throws LockError(invalid_argument) if it is ambiguous which tables are meant.
  asio::awaitable<FoundTables> find_tables(CallLimits limits);
  asio::awaitable<FoundFunctions> find_functions(const Tables& resolved, const FoundTables& found, CallLimits limits);
  // Makes the next operation check the tables and functions again.
  void forget_tables();

  // The reservation that a waiter requests when it joins a queue.
  [[nodiscard]] std::chrono::milliseconds reservation() const noexcept { return round_trip_.reservation(); }

  // Null if waiters can only poll: there are no functions, or listening is turned off. Throws LockError.
  asio::awaitable<std::shared_ptr<WakeListener>> wake_listener(CallLimits limits);
  [[nodiscard]] backends::LookLoop& looks() const noexcept { return *looks_; }
  [[nodiscard]] backends::Waiters& waiters() const noexcept { return looks_->waiters(); }

  // Open connections, that of the waiters included.
  [[nodiscard]] std::size_t connections() const noexcept;

  void close();

 private:
  // A connection and the statements that it runs.
  struct Transaction;
  struct Pending;

  // Null if the tables must be checked first.
  std::shared_ptr<const Statements> known_statements();
  asio::awaitable<std::shared_ptr<const Statements>> check_tables(CallLimits limits);
  // Null if no request with this id was given up.
  std::shared_ptr<Pending> abandoned_with(const LockId& id);
  // The statements of one transaction.
  std::vector<Statement> statements_of(const Operation& operation, const Values& values, const Statements& known,
                                       const CallLimits& limits) const;
  asio::awaitable<Rows> exchange(Transaction transaction, const CallLimits& limits, const LockId* id);
  asio::awaitable<void> receive(std::shared_ptr<Pending> pending);
  void cancel(const std::shared_ptr<Pending>& pending, std::chrono::steady_clock::duration timeout);

  const PostgresOptions options_;
  const Log log_;
  const Tables names_;
  const std::shared_ptr<Pool> pool_;
  const std::shared_ptr<backends::LookLoop> looks_;
  // Null if listening is turned off.
  std::shared_ptr<WakeListener> wake_listener_;

  core::RoundTrip round_trip_;

  // Whether functions are called inside BEGIN and COMMIT, because the default isolation is not READ COMMITTED.
  std::atomic<bool> sets_isolation_ = false;

  std::mutex mutex_;
  std::shared_ptr<const Statements> statements_;
  // When to check again for missing functions.
  std::chrono::steady_clock::time_point next_function_check_{};
  // Requests that the caller has given up and the server has not finished.
  std::unordered_map<LockId, std::shared_ptr<Pending>> abandoned_;
};

}  // namespace syncguard::postgres
