// Wakes waiters when it is their turn. One subscribing connection serves all waiters of a client.
#pragma once

#include "backends/redis/connection.hpp"
#include "backends/redis/names.hpp"
#include "backends/waiters.hpp"

#include <asio/any_io_executor.hpp>
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

  // wake is called (on any thread) when it may be this waiter's turn.
  void add(const asio::any_io_executor& executor, const LockId& waiter, const std::string& lock_name,
           std::function<void()> wake);
  // After this returns, the connection is subscribed to the channels of a waiter that was added. Throws LockError.
  asio::awaitable<void> subscribe(LockId waiter, std::string lock_name, CallLimits limits);
  void remove(const LockId& waiter);
  // Does nothing if the waiter does not exist.
  void wake(const LockId& waiter) const { waiters_.wake(waiter); }
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
    int waiters = 0;
    // Null before the first keyspace event: most servers do not report them.
    std::unique_ptr<asio::steady_timer> timer;
  };

  void on_message(const Reply& message);
  void key_changed(const std::string& lock_name, std::string_view event);
  [[nodiscard]] std::string key_channel(std::string_view lock_name) const;

  const std::shared_ptr<const RedisOptions> options_;
  const std::shared_ptr<const Tls> tls_;
  const Log log_;
  const Names names_;
  std::shared_ptr<Connection> connection_;

  // The topic of each waiter is the name of its lock. Changed under the mutex, like the counts in watched_.
  backends::Waiters waiters_;
  std::mutex mutex_;
  std::optional<Address> client_address_;
  // Of the first waiter.
  std::optional<asio::any_io_executor> executor_;
  // By the hash of the waiter's channel, because that takes less memory than the channel.
  std::unordered_multimap<std::size_t, LockId> by_channel_;
  // By the name of the lock.
  std::map<std::string, Watched, std::less<>> watched_;
};

}  // namespace syncguard::redis
