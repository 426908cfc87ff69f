// Checks whether a Redis server is fit for locks.
#pragma once

#include "backends/redis/session.hpp"

#include <syncguard/diagnosis.hpp>

#include <asio/awaitable.hpp>

#include <vector>

namespace syncguard::redis {

// Throws LockError(aborted) only.
asio::awaitable<std::vector<Finding>> diagnose(Session& session, CallLimits limits);

}  // namespace syncguard::redis
