#include "backends/redis/server.hpp"

#include "backends/redis/server_error.hpp"

#include <utility>

namespace syncguard::redis {

Server::Server(RedisOptions options, const Log& log)
    : options_(std::make_shared<const RedisOptions>(std::move(options))),
      tls_(options_->tls ? std::make_shared<const Tls>(*options_->tls) : nullptr),
      names_(options_->prefix),
      subscriber_(std::make_shared<Subscriber>(options_, tls_, log, names_)) {
  for (std::size_t i = 0; i < options_->connections; ++i) {
    links_.push_back(std::make_shared<Link>(options_, tls_, log, Link::Events{}));
  }
  subscriber_->start();
}

asio::awaitable<Reply> Server::run(Link& link, const Script& script, const Arguments& arguments,
                                   const CallLimits& limits) const {
  constexpr int most_moves = 3;
  bool knows_script = true;
  for (int moves = 0;;) {
    auto request = knows_script ? arguments.by_hash(script) : arguments.by_text(script);
    auto [reply, connection] = co_await link.call(std::move(request), limits);
    if (!reply.is_error()) co_return std::move(reply);
    // None of these was carried out, so that it can be sent again.
    const auto code = code_of(reply.text);
    if (code == "NOSCRIPT" && knows_script) {
      knows_script = false;
      continue;
    }
    if (const auto moved = moved_to(reply.text); moved && moves++ < most_moves) {
      if (link.move_to({moved->host, moved->port}, connection)) subscriber_->follow(link.address());
      continue;
    }
    // The server is no master any more: where it was found, another one may be now.
    if (code == "READONLY" && link.reconnect(connection)) subscriber_->reconnect();
    throw server_error(reply.text);
  }
}

void Server::close() const {
  for (const auto& link : links_) link->close();
  subscriber_->close();
}

}  // namespace syncguard::redis
