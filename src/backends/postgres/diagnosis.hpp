// Whether a PostgreSQL server is fit for locks.
#pragma once

#include "backends/postgres/connection.hpp"
#include "backends/postgres/tables.hpp"

#include <syncguard/diagnosis.hpp>

#include <asio/awaitable.hpp>

#include <functional>
#include <vector>

namespace syncguard::postgres {

// How to ask it: one statement, outside of transactions. Throws LockError.
using Ask = std::function<asio::awaitable<Rows>(std::string name, std::string sql, std::vector<std::string> values)>;

// connection is what libpq was given. Throws LockError(aborted) only.
asio::awaitable<std::vector<Finding>> diagnose(Ask ask, Tables tables, std::string connection);

}  // namespace syncguard::postgres
