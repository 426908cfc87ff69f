// One connection to a Redis server, shared by everybody, that comes back when it is lost.
#pragma once

#include "backends/redis/requests.hpp"
#include "backends/redis/stream.hpp"
#include "backends/redis/whereabouts.hpp"

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

// Requests of all threads and coroutines are written in the order in which they come, as many as there are at once; the
// replies come in the same order. A thread that blocks writes its request itself where the socket takes it; those of
// coroutines are collected until whatever else can run now has run.
//
// Connects on the first call, and again on the next one after the connection was lost: what was not sent yet goes
// on the new one, what was sent and not answered fails as service_unavailable, in doubt.
class Link : public std::enable_shared_from_this<Link> {
 public:
  // For connections that subscribe. Called on the link's strand.
  struct Events {
    std::function<void(const Reply& message)> message{};
    std::function<void()> lost{};
  };

  // tls may be null.
  Link(std::shared_ptr<const RedisOptions> options, std::shared_ptr<const Tls> tls, Log log, Events events);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();

  using Answer = Request::Answer;
  // Sends a request and waits for its reply, which may be an error of the server's. Throws LockError where there is
  // none.
  asio::awaitable<Answer> call(std::string request, const CallLimits& limits);

  // Sends a request whose reply nobody wants. False if there is no connection.
  bool tell(std::string request);

  // What comes next goes to another server, or to the same one on a new connection, unless this has happened since the
  // given connection. What is under way is still answered. True if it did.
  bool move_to(Address address, std::uint64_t since);
  bool reconnect(std::uint64_t since);
  // Wherever it is now.
  void follow(Address address);
  void reconnect();
  [[nodiscard]] Address address();

  // Ends everything that is under way with aborted.
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Connection;
  using ConnectionPtr = std::shared_ptr<Connection>;

  void use(const asio::any_io_executor& executor);
  void submit(const RequestPtr& request, std::unique_ptr<Suspended> caller);
  [[nodiscard]] bool is_full();

  void start_connecting();
  asio::awaitable<void> run_connection();
  asio::awaitable<ConnectionPtr> connect();
  asio::awaitable<void> read_replies(const ConnectionPtr& connection);
  void take_in(const ConnectionPtr& connection, std::string_view bytes);
  void deliver(Connection& connection, Reply& reply);
  void lost(const ConnectionPtr& connection, const LockError& error);
  void retire();
  void drop(const ConnectionPtr& connection);

  void flush(Lock& lock, const ConnectionPtr& connection);
  void flush_soon();
  asio::awaitable<void> write_rest(ConnectionPtr connection);

  void watch(Clock::time_point due);
  void look_at_deadlines();

  const std::shared_ptr<const RedisOptions> options_;
  const std::shared_ptr<const Tls> tls_;
  const Log log_;
  const Events events_;
  const std::stop_source stop_;

  std::mutex mutex_;
  bool closed_ = false;
  // The first caller's; all have the same.
  asio::any_io_executor executor_;
  asio::any_io_executor strand_;
  Whereabouts whereabouts_;
  Unsent unsent_;
  // The one in use, if any, and those on which the last replies are awaited.
  ConnectionPtr connection_;
  std::vector<ConnectionPtr> retired_;
  std::uint64_t connections_made_ = 0;
  bool connecting_ = false;
  bool flush_is_posted_ = false;
  std::shared_ptr<Stream> connecting_stream_;
  // One timer for the deadlines of all requests. It is let run out: nearly always the request it was for is answered.
  std::optional<asio::steady_timer> timer_;
  Clock::time_point timer_due_ = Clock::time_point::max();
};

}  // namespace syncguard::redis
