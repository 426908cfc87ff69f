// Checks whether a Redis server is fit for locks.
#pragma once

#include "backends/redis/handshake.hpp"
#include "backends/redis/session.hpp"

#include <syncguard/diagnosis.hpp>

#include <asio/awaitable.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace syncguard::redis {

// Throws LockError(aborted) only.
asio::awaitable<std::vector<Finding>> diagnose(Session& session, CallLimits limits);

// The verdicts below need no connection.

enum class Failover { by_others, by_sentinels };
// Whether this server is a master, and whether there is a server to fail over to.
Finding replication(const Info& info, Failover failover);

struct ReplicaClock {
  std::string name;
  // How far it is ahead of the master's clock (negative: behind); nullopt if it could not be read.
  std::optional<std::chrono::milliseconds> ahead{};
  // Why it could not be read.
  std::string error{};
};
// A promoted replica's clock decides about expiry and fences. One that is ahead makes leases shorter; one that is
// behind lets fences repeat for as long as it is behind.
Finding clocks_of_replicas(const std::vector<ReplicaClock>& clocks);

}  // namespace syncguard::redis
