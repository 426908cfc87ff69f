// Whether a PostgreSQL server is fit for locks.
#pragma once

#include "backends/postgres/connection.hpp"
#include "backends/postgres/listener.hpp"
#include "backends/postgres/tables.hpp"

#include <syncguard/diagnosis.hpp>
#include <syncguard/postgres.hpp>

#include <asio/awaitable.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace syncguard::postgres {

// What it takes to find out. Each throws LockError.
struct Examiner {
  // Runs one statement, outside of transactions.
  std::function<asio::awaitable<Rows>(std::string name, std::string sql, std::vector<std::string> values)> ask;
  // Listens as a waiter does; null where waiters can only poll.
  std::function<asio::awaitable<std::shared_ptr<Listener>>()> listener;
  CallLimits limits;
};

// Throws LockError(aborted) only.
asio::awaitable<std::vector<Finding>> diagnose(Examiner examiner, const PostgresOptions& options, Tables tables);

}  // namespace syncguard::postgres
