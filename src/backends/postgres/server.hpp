// What one client knows of its server: connections, tables, and what is still under way there.
#pragma once

#include "backends/postgres/listener.hpp"
#include "backends/postgres/pool.hpp"
#include "backends/postgres/statements.hpp"

#include <syncguard/postgres.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace syncguard::postgres {

class Server : public std::enable_shared_from_this<Server> {
 public:
  Server(PostgresOptions options, Log log);

  [[nodiscard]] const PostgresOptions& options() const noexcept { return options_; }
  [[nodiscard]] const Tables& tables() const noexcept { return tables_; }

  // What a transaction consists of besides its beginning, its limits and its end.
  using Steps = std::function<std::vector<Statement>(const Statements&)>;

  // One transaction, in one round trip; the rows of its last step. A caller that gives up, at its deadline or when it
  // is stopped, leaves a transaction that is being cancelled; nothing about the same lock id overtakes it.
  asio::awaitable<Rows> run(Steps steps, CallLimits limits, const LockId* id = nullptr);
  // The same with nobody waiting for it.
  void run_in_background(const asio::any_io_executor& executor, Steps steps, std::optional<LockId> id);
  // One statement by itself, whether the tables are there or not.
  asio::awaitable<Rows> ask(std::string name, std::string sql, std::vector<std::string> values, CallLimits limits);

  // Null where waiters can only poll: without the queue's table, or with listening turned off. Throws LockError.
  asio::awaitable<std::shared_ptr<Listener>> listener(CallLimits limits);

  void close();

 private:
  struct Exchange;

  asio::awaitable<std::shared_ptr<const Statements>> statements(CallLimits limits);
  asio::awaitable<std::shared_ptr<const Statements>> look_at_tables(CallLimits limits);
  asio::awaitable<void> wait_for_what_is_under_way(const LockId& id, CallLimits limits);
  asio::awaitable<void> perform(std::shared_ptr<Exchange> exchange);
  asio::awaitable<Rows> exchange(Pool::Pooled pooled, std::vector<Statement> statements,
                                 std::shared_ptr<const void> keeps_alive, CallLimits limits, const LockId* id);
  void cancel(const std::shared_ptr<Exchange>& exchange, std::chrono::steady_clock::duration timeout);

  const PostgresOptions options_;
  const Log log_;
  const Tables tables_;
  const std::shared_ptr<Pool> pool_;
  // Null with listening turned off.
  std::shared_ptr<Listener> listener_;

  std::mutex mutex_;
  std::shared_ptr<const Statements> statements_;
  // Given up by their callers, but not by the server.
  std::unordered_map<LockId, std::shared_ptr<Exchange>> abandoned_;
};

}  // namespace syncguard::postgres
