// Waits until replicas have the writes of a connection: the option min_replicas.
#pragma once

#include "async/event.hpp"
#include "backends/redis/protocol.hpp"
#include "backends/redis/requests.hpp"

#include <syncguard/backend.hpp>
#include <syncguard/redis.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace syncguard::redis {

// The request WAIT, for which options.min_replicas must be positive.
std::string wait_request(const RedisOptions& options);
// Reads the reply to it. Throws LockError unless enough replicas have confirmed.
void expect_replicas(const Reply& reply, const RedisOptions& options);

// WAIT blocks everything behind it on its connection. At most one is therefore in flight, and it covers all writes
// before it: callers that come while one is in flight share the next one. Thread-safe.
class ReplicaWait : public std::enable_shared_from_this<ReplicaWait> {
 public:
  // Sends WAIT on the connection with the writes, and returns the answer. Throws LockError.
  using Send = std::function<asio::awaitable<Request::Answer>()>;

  ReplicaWait(std::shared_ptr<const RedisOptions> options, Send send)
      : options_(std::move(options)), send_(std::move(send)) {}

  // Returns when enough replicas have a write whose reply came on the connection with this number. Throws LockError, in
  // doubt: too few have it in time, the server refuses to wait, or that connection was lost.
  asio::awaitable<void> confirm(std::uint64_t connection, const CallLimits& limits);

 private:
  // One WAIT.
  using Round = async::Promise<Request::Answer>;

  asio::awaitable<void> run_rounds();
  std::optional<Round> begin_round();

  const std::shared_ptr<const RedisOptions> options_;
  const Send send_;
  std::mutex mutex_;
  bool running_ = false;
  // Not sent yet.
  std::optional<Round> next_;
};

}  // namespace syncguard::redis
