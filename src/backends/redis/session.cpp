#include "backends/redis/session.hpp"

#include "backends/redis/errors.hpp"
#include "backends/redis/sentinel.hpp"

#include <utility>

namespace syncguard::redis {
namespace {

// A look takes the server about five microseconds. One request keeps it busy for a fraction of a millisecond.
constexpr backends::Waiters::Pace pace{.per_look = std::chrono::microseconds(100)};
constexpr std::size_t max_looks = 64;
static_assert(3 * max_looks <= ReplyReader::max_elements);

asio::awaitable<Connection::Answer> wait_on(std::shared_ptr<Connection> connection,
                                            std::shared_ptr<const RedisOptions> options) {
  const CallLimits limits{{}, Clock::now() + options->replica_timeout + options->operation_timeout};
  std::string request = wait_request(*options);
  co_return co_await connection->call(std::move(request), limits);
}

// While its slot moves, keys may be on either of two nodes. An acquire is not sent to the second one: its release, on
// the usual connection, could overtake it, and that node would refuse it anyway, because it has only some of its keys.
// Scripts that search would find only the keys of that node.
bool follows_ask(const Script& script) {
  const auto& all = scripts();
  return &script != &all.acquire && &script != &all.list && &script != &all.highest_counter;
}

}  // namespace

Session::Session(RedisOptions options, const Log& log)
    : options_(std::make_shared<const RedisOptions>(std::move(options))),
      log_(log),
      tls_(options_->tls ? std::make_shared<const Tls>(*options_->tls) : nullptr),
      names_(options_->prefix),
      looks_(std::make_shared<backends::LookLoop>(pace, max_looks)),
      wake_listener_(std::make_shared<WakeListener>(options_, tls_, log, names_, looks_)) {
  for (std::size_t i = 0; i < options_->connections; ++i) {
    // Scripts publish where they run: on the node that a cluster redirects to, or the new master after a failover.
    const auto follow = [weak = std::weak_ptr(wake_listener_)](const Address& address) {
      if (const auto wake_listener = weak.lock()) wake_listener->client_moved_to(address);
    };
    auto connection = std::make_shared<Connection>(options_, tls_, log_, Connection::Events{.connected = follow});
    granting_.push_back(make_granting(connection));
    connections_.push_back(std::move(connection));
  }
  wake_listener_->start();
}

// Given the connection for everything else.
Session::Granting Session::make_granting(std::shared_ptr<Connection> connection) const {
  if (options_->min_replicas == 0) return {std::move(connection), nullptr};
  // After a failover, a release must not go to the old master.
  const auto lead = [weak = std::weak_ptr(connection)](const Address& address) {
    const auto other = weak.lock();
    if (other && other->address().value_or(address) != address) other->follow(address);
  };
  auto granting = std::make_shared<Connection>(options_, tls_, log_, Connection::Events{.connected = lead});
  const auto wait = [granting, options = options_] { return wait_on(granting, options); };
  return {granting, std::make_shared<ReplicaWait>(options_, wait)};
}

// Whether it is a grant or an extension that is to be confirmed.
bool Session::needs_replicas(const Script& script, const Reply& reply) const {
  const bool grants = &script == &scripts().acquire || &script == &scripts().extend;
  return options_->min_replicas > 0 && grants && !reply.elements.empty() && reply.elements.front().integer == 1;
}

asio::awaitable<Reply> Session::grant(const LockId& id, const Script& script, const Arguments& arguments,
                                      const CallLimits& limits) const {
  const auto& [connection, replica_wait] = granting_for(id);
  auto [reply, number] = co_await send(*connection, script, arguments, limits);
  if (number != 0 && needs_replicas(script, reply)) co_await replica_wait->confirm(number, limits);
  co_return std::move(reply);
}

asio::awaitable<Reply> Session::run(Connection& connection, const Script& script, const Arguments& arguments,
                                    const CallLimits& limits) const {
  auto answer = co_await send(connection, script, arguments, limits);
  co_return std::move(answer.reply);
}

asio::awaitable<Connection::Answer> Session::send(Connection& connection, const Script& script,
                                                  const Arguments& arguments, const CallLimits& limits) const {
  constexpr int max_redirections = 3;
  bool knows_script = true;
  for (int moves = 0;;) {
    auto request = knows_script ? arguments.by_hash(script) : arguments.by_text(script);
    auto [reply, number] = co_await connection.call(std::move(request), limits);
    if (!reply.is_error()) co_return Connection::Answer{std::move(reply), number};
    // None of these was carried out, so that it can be sent again.
    const auto code = code_of(reply.text);
    if (code == "NOSCRIPT" && knows_script) {
      knows_script = false;
      continue;
    }
    if (const auto moved = moved_to(reply.text); moved && moves++ < max_redirections) {
      connection.move_to({moved->host, moved->port}, number);
      continue;
    }
    if (const auto asked = asked_at(reply.text); asked && follows_ask(script)) {
      const auto here = connection.address();
      const Address there{asked->host.empty() && here ? here->host : asked->host, asked->port};
      auto reply_there = co_await run_after_asking(there, script, arguments, limits);
      co_return Connection::Answer{std::move(reply_there), 0};
    }
    // The server is no master any more: where it was found, another one may be now.
    if (code == "READONLY" && connection.reconnect(number)) wake_listener_->reconnect();
    throw server_error(reply.text);
  }
}

asio::awaitable<Reply> Session::run_after_asking(Address address, const Script& script, const Arguments& arguments,
                                                 CallLimits limits) const {
  // A connection of its own, because ASKING is about the next request. If this user may not send it, the script gets
  // the answer MOVED.
  const ScopedConnection importing(connect_to(address.host, address.port));
  std::string asking = format_command({"ASKING"});
  (void)co_await importing->call(std::move(asking), limits);
  std::string request = arguments.by_text(script);
  auto answer = co_await importing->call(std::move(request), limits);
  if (answer.reply.is_error()) throw server_error(answer.reply.text);
  if (needs_replicas(script, answer.reply)) {
    std::string wait = wait_request(*options_);
    const auto confirmed = co_await importing->call(std::move(wait), limits);
    try {
      expect_replicas(confirmed.reply, *options_);
    } catch (const LockError& error) {
      throw error.as_in_doubt();
    }
  }
  co_return std::move(answer.reply);
}

std::shared_ptr<Connection> Session::connect_to(std::string host, std::uint16_t port) const {
  auto options = std::make_shared<RedisOptions>(*options_);
  options->host = std::move(host);
  options->port = port;
  options->unix_socket.clear();
  options->more_addresses.clear();
  options->sentinel.reset();
  return std::make_shared<Connection>(options, tls_, Log([](LogLevel, std::string_view) {}), Connection::Events{});
}

std::shared_ptr<Connection> Session::connect_to_sentinel(const Address& address) const {
  return redis::connect_to_sentinel(*options_, tls_, address);
}

std::size_t Session::open_sockets() const noexcept {
  std::size_t sockets = wake_listener_->open_sockets();
  for (const auto& connection : connections_) sockets += connection->open_sockets();
  if (options_->min_replicas > 0) {
    for (const auto& granting : granting_) sockets += granting.connection->open_sockets();
  }
  return sockets;
}

void Session::close() const {
  for (const auto& connection : connections_) connection->close();
  for (const auto& granting : granting_) granting.connection->close();
  wake_listener_->close();
  looks_->close();
}

}  // namespace syncguard::redis
