// The first requests on every connection, and the reply to INFO.
#pragma once

#include "backends/redis/protocol.hpp"
#include "backends/redis/stream.hpp"

#include <syncguard/log.hpp>

#include <asio/awaitable.hpp>

#include <map>
#include <string>
#include <string_view>

namespace syncguard::redis {

// The reply to INFO: lines of name:value.
class Info {
 public:
  explicit Info(std::string_view text);

  // Empty if the reply does not contain it.
  [[nodiscard]] std::string value(std::string_view name) const;

  // Whether the server evicts keys when its memory is full: holders lose their locks, and fences restart.
  enum class Eviction { off, on, unknown };
  [[nodiscard]] Eviction eviction() const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// What a connection must lead to.
enum class Peer { server, sentinel };

// Authenticates, selects the database, sets the client name, and checks the kind of server: warns about one that may
// evict locks and fences, rejects a cluster on which the prefix cannot work, and a Sentinel in place of a server. One
// round trip. Returns the reader for the connection. Throws LockError.
asio::awaitable<ReplyReader> handshake(Stream& stream, const RedisOptions& options, std::string password, Peer peer,
                                       const Log& log);

}  // namespace syncguard::redis
