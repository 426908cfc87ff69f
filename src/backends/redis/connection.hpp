// One connection to a Redis server, shared by all callers, that reconnects when it is lost.
#pragma once

#include "backends/redis/handshake.hpp"
#include "backends/redis/requests.hpp"
#include "backends/redis/server_address.hpp"
#include "backends/redis/stream.hpp"
#include "core/reservation.hpp"

#include <syncguard/backend.hpp>
#include <syncguard/log.hpp>
#include <syncguard/redis.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace syncguard::redis {

// Requests of all threads and coroutines are written in order and in batches; the replies arrive in the same order. A
// blocking thread writes its request itself if the socket accepts it; requests of coroutines are collected until all
// ready handlers have run.
//
// Connects on the first call, and reconnects on the next one after the connection was lost: unsent requests go to the
// new connection, sent requests without a reply fail as service_unavailable, in doubt.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Called on the connection's strand. Only a subscribing connection has the first two.
  struct Events {
    std::function<void(const Reply& message)> message{};
    std::function<void()> lost{};
    std::function<void(const Address& address)> connected{};
  };

  // tls may be null.
  Connection(std::shared_ptr<const RedisOptions> options, std::shared_ptr<const Tls> tls, Log log, Events events,
             Peer peer = Peer::server);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  using Answer = Request::Answer;
  // Sends a request and waits for its reply, which may be an error reply. Throws LockError if no reply arrives.
  asio::awaitable<Answer> call(std::string request, const CallLimits& limits);

  // Sends a request without waiting for its reply. Returns false if there is no connection, or too many requests are
  // pending; a subscribing connection is then closed.
  bool send_without_reply(std::string request);

  // Later requests use a new connection: to the given address, or to the server that the next attempt finds. Pending
  // requests still get their replies. Both do nothing and return false if connection number `since` is no longer the
  // current one. An address without a host means another port of the same host.
  bool move_to(Address address, std::uint64_t since);
  bool reconnect(std::uint64_t since);
  // The same, whichever connection is the current one.
  void follow(const Address& address);
  void reconnect();
  // The server of the current connection; nullopt if there is none.
  [[nodiscard]] std::optional<Address> address();
  // The number of connected sockets: usually one, more while earlier ones wait for their last replies.
  [[nodiscard]] std::size_t open_sockets() noexcept;

  // Measured by answered requests.
  [[nodiscard]] const core::RoundTrip& round_trip() const noexcept { return round_trip_; }

  // Ends all pending requests with aborted.
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Socket;
  using SocketPtr = std::shared_ptr<Socket>;

  void use(const asio::any_io_executor& executor);
  enum class Sending { at_once, collected };
  void submit(const RequestPtr& request, std::unique_ptr<Suspended> caller, Sending sending);
  [[nodiscard]] bool is_full();

  void start_connecting();
  asio::awaitable<void> run_connection();
  asio::awaitable<SocketPtr> connect();
  asio::awaitable<SocketPtr> connect_to(const Address& address, std::string password);
  asio::awaitable<std::string> password() const;
  asio::awaitable<void> read_replies(const SocketPtr& socket);
  void process_input(const SocketPtr& socket, std::string_view bytes);
  void deliver(Socket& socket, Reply& reply);
  void lost(const SocketPtr& socket, const LockError& error);
  void retire();
  void drop(const SocketPtr& socket);

  void flush(Lock& lock, const SocketPtr& socket);
  void flush_soon();
  asio::awaitable<void> write_rest(SocketPtr socket);

  void watch(Clock::time_point due);
  void check_deadlines();

  const std::shared_ptr<const RedisOptions> options_;
  const std::shared_ptr<const Tls> tls_;
  const Log log_;
  const Events events_;
  const Peer peer_;
  const std::stop_source stop_;
  core::RoundTrip round_trip_;

  std::mutex mutex_;
  bool closed_ = false;
  // The executor of the first caller. All callers have the same.
  asio::any_io_executor executor_;
  asio::any_io_executor strand_;
  ServerAddress server_address_;
  Unsent unsent_;
  // The current connection, if any, and earlier ones that still wait for replies.
  SocketPtr socket_;
  std::vector<SocketPtr> retired_;
  std::uint64_t connections_made_ = 0;
  bool connecting_ = false;
  bool flush_is_posted_ = false;
  std::shared_ptr<Stream> connecting_stream_;
  // One timer for the deadlines of all requests. It is not canceled when its request is answered, which is the usual
  // case.
  std::optional<asio::steady_timer> timer_;
  Clock::time_point timer_due_ = Clock::time_point::max();
};

// Closes a connection at the end of the scope.
class ScopedConnection {
 public:
  explicit ScopedConnection(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ScopedConnection(const ScopedConnection&) = delete;
  ScopedConnection& operator=(const ScopedConnection&) = delete;
  ~ScopedConnection() { connection_->close(); }

  [[nodiscard]] Connection& operator*() const noexcept { return *connection_; }
  [[nodiscard]] Connection* operator->() const noexcept { return connection_.get(); }

 private:
  const std::shared_ptr<Connection> connection_;
};

}  // namespace syncguard::redis
