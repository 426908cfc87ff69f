// One client's state for its server: connections, scripts and waiters.
#pragma once

#include "backends/look_loop.hpp"
#include "backends/redis/connection.hpp"
#include "backends/redis/names.hpp"
#include "backends/redis/protocol.hpp"
#include "backends/redis/replica_wait.hpp"
#include "backends/redis/scripts.hpp"
#include "backends/redis/wake_listener.hpp"

#include <syncguard/redis.hpp>

#include <memory>
#include <vector>

namespace syncguard::redis {

// Tickets share it with their backend, and may outlive that.
class Session {
 public:
  Session(RedisOptions options, const Log& log);

  [[nodiscard]] const RedisOptions& options() const noexcept { return *options_; }
  [[nodiscard]] const Names& names() const noexcept { return names_; }
  [[nodiscard]] const Log& log() const noexcept { return log_; }
  [[nodiscard]] WakeListener& wake_listener() const noexcept { return *wake_listener_; }
  [[nodiscard]] backends::LookLoop& looks() const noexcept { return *looks_; }
  [[nodiscard]] backends::Waiters& waiters() const noexcept { return looks_->waiters(); }

  // Everything about one lock id goes one way, so that nothing overtakes anything. With min_replicas, grants have
  // connections of their own, which WAIT blocks.
  [[nodiscard]] Connection& connection_for(const LockId& id) const {
    return *connections_[std::hash<LockId>{}(id) % connections_.size()];
  }
  [[nodiscard]] Connection& connection_for(const Key& key) const {
    return *connections_[std::hash<Key>{}(key) % connections_.size()];
  }

  // For acquires and extensions, and for the retraction of an acquire that may be pending.
  [[nodiscard]] Connection& granting_connection_for(const LockId& id) const { return *granting_for(id).connection; }

  // Runs a script, following redirections; the reply is not an error. Throws LockError.
  asio::awaitable<Reply> run(Connection& connection, const Script& script, const Arguments& arguments,
                             const CallLimits& limits) const;
  // The same for an acquire or an extension of this lock id. With min_replicas, success counts only when enough
  // replicas have it. If they do not, throws LockError, in doubt.
  asio::awaitable<Reply> grant(const LockId& id, const Script& script, const Arguments& arguments,
                               const CallLimits& limits) const;

  // A new connection to another server, such as a replica, with the same credentials. The caller closes it.
  [[nodiscard]] std::shared_ptr<Connection> connect_to(std::string host, std::uint16_t port) const;
  // The same to a Sentinel, with the credentials for Sentinels. The options must have a sentinel.
  [[nodiscard]] std::shared_ptr<Connection> connect_to_sentinel(const Address& address) const;

  // Connected sockets, including those of waiters and of grants.
  [[nodiscard]] std::size_t open_sockets() const noexcept;

  void close() const;

 private:
  struct Granting {
    std::shared_ptr<Connection> connection;
    // Null without min_replicas.
    std::shared_ptr<ReplicaWait> replica_wait;
  };
  [[nodiscard]] const Granting& granting_for(const LockId& id) const {
    return granting_[std::hash<LockId>{}(id) % granting_.size()];
  }

  [[nodiscard]] Granting make_granting(std::shared_ptr<Connection> connection) const;
  [[nodiscard]] bool needs_replicas(const Script& script, const Reply& reply) const;
  // The number of the connection is 0 if another node answered, and its replicas have confirmed.
  asio::awaitable<Connection::Answer> send(Connection& connection, const Script& script, const Arguments& arguments,
                                           const CallLimits& limits) const;
  asio::awaitable<Reply> run_after_asking(Address address, const Script& script, const Arguments& arguments,
                                          CallLimits limits) const;

  const std::shared_ptr<const RedisOptions> options_;
  const Log log_;
  const std::shared_ptr<const Tls> tls_;
  const Names names_;
  const std::shared_ptr<backends::LookLoop> looks_;
  const std::shared_ptr<WakeListener> wake_listener_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::vector<Granting> granting_;
};

}  // namespace syncguard::redis
