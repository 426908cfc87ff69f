// Whether a PostgreSQL server is fit for locks.
#pragma once

#include "backends/postgres/session.hpp"

#include <syncguard/diagnosis.hpp>

#include <asio/awaitable.hpp>

#include <string>
#include <vector>

namespace syncguard::postgres {

// Rates an actual connection, not the settings in the URL.
Finding encryption(const std::string& check, const Security& security);

// Throws only LockError(aborted).
asio::awaitable<std::vector<Finding>> diagnose(Session& session, CallLimits limits);

}  // namespace syncguard::postgres
