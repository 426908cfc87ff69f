// Requests to Redis Sentinels.
#pragma once

#include "backends/redis/connection.hpp"
#include "backends/redis/discovery.hpp"

#include <syncguard/redis.hpp>

#include <asio/awaitable.hpp>

#include <memory>
#include <stop_token>

namespace syncguard::redis {

// Creates a connection to a Sentinel. options.sentinel must be set; tls may be null.
std::shared_ptr<Connection> connect_to_sentinel(const RedisOptions& options, std::shared_ptr<const Tls> tls,
                                                const Address& address);

// Asks one Sentinel for the master and for other Sentinels. Ends within the Sentinel's timeout. Throws LockError.
asio::awaitable<SentinelAnswer> ask_sentinel(const RedisOptions& options, std::shared_ptr<const Tls> tls,
                                             Address address, std::stop_token stop);

}  // namespace syncguard::redis
