// Wakes waiters when it is their turn. One subscribing connection serves all waiters of a client.
#pragma once

#include "backends/redis/connection.hpp"
#include "backends/redis/names.hpp"
#include "backends/waiters.hpp"

#include <asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace syncguard::redis {

// Each waiter has its own channel, to which a release by this library publishes. Releases by other libraries are
// noticed only if the server reports keyspace events.
class WakeListener : public std::enable_shared_from_this<WakeListener> {
 public:
  WakeListener(std::shared_ptr<const RedisOptions> options, std::shared_ptr<const Tls> tls, Log log,
               const Names& names);
  // Call once, before the other functions.
  void start();

  // After this returns, wake is called (on any thread) when it may be this waiter's turn. A repeated call makes sure
  // that the connection is still subscribed. Throws LockError.
  asio::awaitable<void> add(LockId waiter, std::string lock_name, std::function<void()> wake, CallLimits limits);
  void remove(const LockId& waiter);
  // Whether such a waiter is subscribed.
  [[nodiscard]] bool contains(const LockId& waiter) const { return waiters_.contains(waiter); }

  void follow(const Address& address) { connection_->follow(address); }
  // Call when the client has connected. If it is not the same server as before, all waiters try and join the queue
  // there.
  void client_moved_to(const Address& address);
  void reconnect() { connection_->reconnect(); }
  [[nodiscard]] std::size_t open_sockets() noexcept { return connection_->open_sockets(); }
  void close() { connection_->close(); }

 private:
  // The state of a lock that has waiters.
  struct Watched {
    explicit Watched(const asio::any_io_executor& executor) : timer(executor) {}
    int waiters = 0;
    asio::steady_timer timer;
  };

  void on_message(const Reply& message);
  void key_changed(const std::string& channel, std::string_view event);

  const std::shared_ptr<const RedisOptions> options_;
  const std::shared_ptr<const Tls> tls_;
  const Log log_;
  const Names names_;
  std::shared_ptr<Connection> connection_;

  // The topic of each waiter is the keyspace channel of its key. Changed under the mutex, like the counts in watched_.
  backends::Waiters waiters_;
  std::mutex mutex_;
  std::optional<Address> client_address_;
  std::unordered_map<std::string, LockId> by_channel_;
  std::map<std::string, Watched, std::less<>> watched_;
};

}  // namespace syncguard::redis
