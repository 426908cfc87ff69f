// What one client knows of its server: connections, scripts, and who waits.
#pragma once

#include "backends/redis/command.hpp"
#include "backends/redis/link.hpp"
#include "backends/redis/names.hpp"
#include "backends/redis/scripts.hpp"
#include "backends/redis/subscriber.hpp"

#include <syncguard/redis.hpp>

#include <memory>
#include <vector>

namespace syncguard::redis {

// Tickets share it with their backend, and may outlive that.
class Server {
 public:
  Server(RedisOptions options, const Log& log);

  [[nodiscard]] const RedisOptions& options() const noexcept { return *options_; }
  [[nodiscard]] const Names& names() const noexcept { return names_; }
  [[nodiscard]] Subscriber& subscriber() const noexcept { return *subscriber_; }

  // Everything about one lock id goes one way, so that nothing overtakes anything.
  [[nodiscard]] Link& link_of(const LockId& id) const { return *links_[std::hash<LockId>{}(id) % links_.size()]; }
  [[nodiscard]] Link& link_of(const Key& key) const { return *links_[std::hash<Key>{}(key) % links_.size()]; }

  // Runs a script, wherever the server has gone to; the reply is no error. Throws LockError.
  asio::awaitable<Reply> run(Link& link, const Script& script, const Arguments& arguments,
                             const CallLimits& limits) const;

  void close() const;

 private:
  const std::shared_ptr<const RedisOptions> options_;
  const std::shared_ptr<const Tls> tls_;
  const Names names_;
  const std::shared_ptr<Subscriber> subscriber_;
  std::vector<std::shared_ptr<Link>> links_;
};

}  // namespace syncguard::redis
