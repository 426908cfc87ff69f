// How waiters learn that it is their turn: one connection for all of a client's.
#pragma once

#include "backends/redis/link.hpp"
#include "backends/redis/names.hpp"
#include "net/waiters.hpp"

#include <asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace syncguard::redis {

// Each waiter has a channel of its own, to which a release of ours publishes. Releases by others tell nobody; where
// the server reports what happens to its keys, that tells too.
class Subscriber : public std::enable_shared_from_this<Subscriber> {
 public:
  Subscriber(std::shared_ptr<const RedisOptions> options, std::shared_ptr<const Tls> tls, Log log, const Names& names);
  // To be called once, before anything else.
  void start();

  // From the moment it returns, wake is called, on any thread, when it may be this waiter's turn. Again: makes sure
  // that it still is so.
  asio::awaitable<void> add(LockId waiter, std::string lock_name, std::function<void()> wake, CallLimits limits);
  void remove(const LockId& waiter);
  // Whether such a waiter is subscribed.
  [[nodiscard]] bool contains(const LockId& waiter) const { return waiters_.contains(waiter); }

  void follow(const Address& address) { link_->follow(address); }
  void reconnect() { link_->reconnect(); }
  void close() { link_->close(); }

 private:
  // What is known of a lock that somebody waits for.
  struct Watched {
    explicit Watched(const asio::any_io_executor& executor) : timer(executor) {}
    int waiters = 0;
    asio::steady_timer timer;
  };

  void told(const Reply& message);
  void key_changed(const std::string& channel, std::string_view event);

  const std::shared_ptr<const RedisOptions> options_;
  const std::shared_ptr<const Tls> tls_;
  const Log log_;
  const Names names_;
  std::shared_ptr<Link> link_;

  // Each with the channel of the key that it waits for. Added and removed under the mutex: watched_ counts them.
  net::Waiters waiters_;
  std::mutex mutex_;
  std::map<std::string, Watched, std::less<>> watched_;
};

}  // namespace syncguard::redis
