// What is said first on every connection.
#pragma once

#include "backends/redis/reply.hpp"
#include "backends/redis/stream.hpp"

#include <syncguard/log.hpp>

#include <asio/awaitable.hpp>

namespace syncguard::redis {

// Signs in, chooses the database, names the client, and looks at what kind of server this is: warns about one that may
// throw locks and fences away, refuses a cluster on which the prefix cannot work. One round trip. Returns the reader
// for what follows. Throws LockError.
asio::awaitable<ReplyReader> shake_hands(Stream& stream, const RedisOptions& options, const Log& log);

}  // namespace syncguard::redis
