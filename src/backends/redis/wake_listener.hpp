// Wakes waiters when it is their turn. One subscribing connection serves all waiters of a client.
#pragma once

#include "backends/look_loop.hpp"
#include "backends/redis/connection.hpp"
#include "backends/redis/names.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace syncguard::redis {

// Each waiter has its own channel, to which a release by this library publishes. If the server reports keyspace events,
// waiters also look at their key soon after another library released it.
class WakeListener : public std::enable_shared_from_this<WakeListener> {
 public:
  WakeListener(std::shared_ptr<const RedisOptions> options, std::shared_ptr<const Tls> tls, Log log, const Names& names,
               std::shared_ptr<backends::LookLoop> looks);
  // Call once, before the other functions.
  void start();

  // wake is called (on any thread) when it may be this waiter's turn.
  void add(const LockId& waiter, const Key& key, std::function<void()> wake);
  // After this returns, the connection is subscribed to the channels of a waiter that was added. Throws LockError.
  asio::awaitable<void> subscribe(LockId waiter, std::string lock_name, CallLimits limits);
  // Subscribes these waiters again if their connection was lost. Does not wait for that.
  void renew_subscriptions(const asio::any_io_executor& executor, std::vector<backends::Waiters::Look> waiters);
  void remove(const LockId& waiter, const Key& key);

  void follow(const Address& address) { connection_->follow(address); }
  // Call when the client has connected. If it is not the same server as before, all waiters try and join the queue
  // there.
  void client_moved_to(const Address& address);
  void reconnect() { connection_->reconnect(); }
  [[nodiscard]] std::size_t open_sockets() noexcept { return connection_->open_sockets(); }
  void close() { connection_->close(); }

 private:
  void on_message(const Reply& message);
  void on_lost();
  asio::awaitable<void> subscribe_again(std::vector<backends::Waiters::Look> waiters);
  [[nodiscard]] std::string key_channel(std::string_view lock_name) const;

  const std::shared_ptr<const RedisOptions> options_;
  const std::shared_ptr<const Tls> tls_;
  const Log log_;
  const Names names_;
  std::shared_ptr<Connection> connection_;

  // The name of a waiter is its channel, and its topic is the name of its lock.
  const std::shared_ptr<backends::LookLoop> looks_;
  std::mutex mutex_;
  std::optional<Address> client_address_;
  // How many waiters each lock has, by its name. Changed under the mutex, like the waiters.
  std::map<std::string, int, std::less<>> watched_;
  // The waiters whose channels the current connection is subscribed to. Changed under the mutex.
  std::unordered_set<LockId> subscribed_;
  std::uint64_t lost_connections_ = 0;
  bool is_renewing_ = false;
};

}  // namespace syncguard::redis
