#include "backends/redis/connection.hpp"

#include "async/event.hpp"
#include "async/run_on_thread.hpp"
#include "async/scoped_timeout.hpp"
#include "async/spawn.hpp"
#include "backends/redis/sentinel.hpp"
#include "os/password.hpp"

#include <asio/post.hpp>
#include <asio/strand.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace syncguard::redis {
namespace {

constexpr std::size_t read_bytes = 32 * 1024;
static_assert(read_bytes <= ReplyReader::max_bytes);

const char* message_of_timeout(Stream::Phase phase) {
  switch (phase) {
    case Stream::Phase::connecting:
      break;
    case Stream::Phase::starting_tls:
      return "Redis did not reply to the TLS handshake in time: check that it uses TLS on this port, or write redis:// "
             "instead of rediss://";
    case Stream::Phase::ready:
      return "Redis accepted the connection but did not reply in time";
  }
  return "timed out connecting to Redis";
}

LockError lost_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const LockError& lock_error) {
    return lock_error;
  } catch (const ProtocolError& protocol_error) {
    return LockError(ErrorCode::internal, std::string("invalid reply from Redis: ") + protocol_error.what(),
                     Effect::none, {.cause = error});
  } catch (const std::exception&) {
    return LockError(ErrorCode::internal, "the connection to Redis failed unexpectedly", Effect::none,
                     {.cause = error});
  }
}

template <typename Handler>
struct SuspendedHandler final : Suspended {
  explicit SuspendedHandler(Handler&& completion_handler) : handler(std::move(completion_handler)) {}
  void resume() override { std::move(handler)(); }
  void resume_later() override { asio::post(std::move(handler)); }
  Handler handler;
};

}  // namespace

struct Connection::Socket {
  Socket(Address server, std::shared_ptr<Stream> new_stream, ReplyReader reply_reader)
      : address(std::move(server)), stream(std::move(new_stream)), reader(std::move(reply_reader)) {}

  // Requests are collected, because one write for many is cheaper. But not more than these: the server would be idle
  // until the client has handled all its replies, and the client until the server has replied to all its requests.
  [[nodiscard]] std::size_t enough_to_send() const noexcept { return std::max<std::size_t>(8, sent.size() / 8); }

  std::uint64_t number = 0;
  // Failed attempts to connect before this one.
  int failures_before = 0;
  bool has_answered = false;
  const Address address;
  const std::shared_ptr<Stream> stream;
  // Used only by the coroutine that reads.
  ReplyReader reader;
  Sent sent{Clock::now()};
  // The bytes being written. Used only by the thread that set writing.
  std::string output{};
  bool writing = false;
};

Connection::Connection(std::shared_ptr<const RedisOptions> options, std::shared_ptr<const Tls> tls, Log log,
                       Events events, Peer peer)
    : options_(std::move(options)),
      tls_(std::move(tls)),
      log_(std::move(log)),
      events_(std::move(events)),
      peer_(peer),
      server_address_(*options_) {}

Connection::~Connection() = default;

void Connection::use(const asio::any_io_executor& executor) {
  const std::lock_guard lock(mutex_);
  if (executor_) return;
  executor_ = asio::require(executor, asio::execution::blocking.never);
  strand_ = asio::make_strand(executor_);
}

// ---------------------------------------------------------------------------------------------------------------------
// Requests

asio::awaitable<Connection::Answer> Connection::call(std::string request_bytes, const CallLimits& limits) {
  const auto self = shared_from_this();
  use(co_await asio::this_coro::executor);
  const auto request = std::make_shared<Request>(std::move(request_bytes), limits.deadline);
  const auto sending = limits.may_block() ? Sending::at_once : Sending::collected;
  {
    const std::stop_callback on_stop(limits.stop, [self, request] {
      const std::lock_guard lock(self->mutex_);
      request->fail(ErrorCode::aborted, "a stop was requested");
    });
    // The reply may arrive, and the coroutine may resume and end, before this function returns. So it owns what it
    // uses.
    auto start = [self, request, sending](auto handler) {
      const std::shared_ptr<Connection> owner(self);  // NOLINT(performance-unnecessary-copy-initialization): see above
      owner->submit(RequestPtr(request), std::make_unique<SuspendedHandler<decltype(handler)>>(std::move(handler)),
                    sending);
    };
    co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(start, asio::use_awaitable);
  }
  co_return request->take_answer();
}

void Connection::submit(const RequestPtr& request, std::unique_ptr<Suspended> caller, Sending sending) {
  Lock lock(mutex_);
  request->await(std::move(caller));
  if (closed_) request->fail(ErrorCode::aborted, "the client is closed");
  if (is_full()) {
    request->fail(ErrorCode::rate_limited, "too many operations are queued for Redis; the option queue sets the limit");
  }
  // Also if the request was stopped before this call.
  if (request->is_finished()) return;
  unsent_.add(request);
  watch(std::min(request->deadline(), Clock::now() + options_->silence_timeout));
  if (!socket_) {
    start_connecting();
  } else if (sending == Sending::at_once || unsent_.size() >= socket_->enough_to_send()) {
    flush(lock, SocketPtr(socket_));
  } else {
    flush_soon();
  }
}

bool Connection::send_without_reply(std::string request_bytes) {
  const std::lock_guard lock(mutex_);
  if (closed_ || !socket_) return false;
  if (is_full()) {
    // A subscription that is not changed now would stay wrong forever. On a new connection, waiters subscribe again.
    // A request of another kind only costs time, and must not make pending operations fail.
    if (events_.lost) drop(SocketPtr(socket_));
    return false;
  }
  unsent_.add(std::make_shared<Request>(std::move(request_bytes), Clock::time_point::max()));
  flush_soon();
  return true;
}

// Under the mutex.
bool Connection::is_full() {
  const auto under_way = [this] { return unsent_.size() + (socket_ ? socket_->sent.size() : 0); };
  if (under_way() < options_->queue) return false;
  unsent_.forget_finished();
  return under_way() >= options_->queue;
}

// ---------------------------------------------------------------------------------------------------------------------
// Connecting

// Under the mutex.
void Connection::start_connecting() {
  if (connecting_ || closed_) return;
  connecting_ = true;
  async::spawn_on(strand_, run_connection(), shared_from_this());
}

asio::awaitable<void> Connection::run_connection() {
  SocketPtr socket;
  std::optional<LockError> failure;
  try {
    socket = co_await connect();
  } catch (...) {
    failure = lost_error(std::current_exception());
  }
  {
    Lock lock(mutex_);
    connecting_ = false;
    connecting_stream_.reset();
    if (closed_) {
      if (socket) socket->stream->close();
      co_return;
    }
    if (failure) {
      server_address_.failed(Clock::now());
      server_address_.reset();
      unsent_.fail_all(*failure);
      co_return;
    }
    socket->number = ++connections_made_;
    socket->failures_before = server_address_.failures();
    socket_ = socket;
    flush(lock, socket);
  }
  if (events_.connected) events_.connected(socket->address);
  co_await read_replies(socket);
}

asio::awaitable<Connection::SocketPtr> Connection::connect() {
  Clock::time_point begin;
  {
    const std::lock_guard lock(mutex_);
    begin = server_address_.next_attempt();
  }
  if (co_await async::sleep_until(begin, stop_.get_token()) == async::WaitResult::stopped) {
    throw LockError(ErrorCode::aborted, "the client is closed");
  }

  // Before connect_timeout starts: a command that calls a cloud provider may need longer.
  const auto password_text = co_await password();
  auto discovery = [this] {
    const std::lock_guard lock(mutex_);
    return server_address_.discover();
  }();
  for (;;) {
    const auto step = discovery.next();
    if (step.action == Discovery::Action::give_up) throw LockError(discovery.error());
    try {
      if (step.action == Discovery::Action::ask_sentinel) {
        auto answer = co_await ask_sentinel(*options_, tls_, step.address, stop_.get_token());
        discovery.answered(std::move(answer));
      } else {
        auto socket = co_await connect_to(step.address, password_text);
        const std::lock_guard lock(mutex_);
        server_address_.discovered(discovery);
        co_return socket;
      }
    } catch (...) {
      if (stop_.stop_requested()) throw;
      discovery.failed(lost_error(std::current_exception()));
    }
  }
}

asio::awaitable<Connection::SocketPtr> Connection::connect_to(const Address& address, std::string password_text) {
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) throw LockError(ErrorCode::aborted, "the client is closed");
    stream = connecting_stream_ = std::make_shared<Stream>(strand_, tls_.get());
  }
  const auto deadline = Clock::now() + options_->connect_timeout;
  const async::ScopedTimeout scoped_timeout(strand_, deadline, [stream] { stream->close(); });
  try {
    const CallLimits limits{stop_.get_token(), deadline};
    const Stream::Liveness liveness{options_->keep_alive, options_->silence_timeout};
    co_await stream->connect(address, liveness, limits);
    auto reader = co_await handshake(*stream, *options_, std::move(password_text), peer_, log_);
    if (!scoped_timeout.has_expired()) {
      co_return std::make_shared<Socket>(address, std::move(stream), std::move(reader));
    }
  } catch (const LockError&) {
    stream->close();
    if (!scoped_timeout.has_expired()) throw;
  }
  throw LockError(ErrorCode::network_timeout, message_of_timeout(stream->phase()));
}

asio::awaitable<std::string> Connection::password() const {
  if (!options_->password_callback) co_return options_->password;
  std::function<std::string()> ask = [callback = options_->password_callback] {
    return os::ask_for_password(callback);
  };
  constexpr std::chrono::seconds max_connect_time{30};
  const CallLimits limits{stop_.get_token(), Clock::now() + max_connect_time};
  co_return co_await async::run_on_thread("syncguard-redis", std::move(ask), limits,
                                          "timed out waiting for the Redis password");
}

// Under the mutex: later requests use a new connection. This one is closed when all its requests are answered.
void Connection::retire() {
  const auto socket = std::exchange(socket_, nullptr);
  if (!socket) return;
  retired_.push_back(socket);
  if (socket->sent.empty()) asio::post(strand_, [stream = socket->stream] { stream->close(); });
  if (!unsent_.empty()) start_connecting();
}

// Under the mutex: closes this connection. Its reader notices and fails all its requests.
void Connection::drop(const SocketPtr& socket) {
  if (socket_ == socket) {
    socket_.reset();
    server_address_.lost();
    retired_.push_back(socket);
  }
  asio::post(strand_, [stream = socket->stream] { stream->close(); });
}

bool Connection::reconnect(std::uint64_t since) {
  const std::lock_guard lock(mutex_);
  if (!socket_ || socket_->number != since) return false;
  server_address_.refused(Clock::now(), socket_->failures_before);
  server_address_.reset();
  retire();
  return true;
}

void Connection::reconnect() {
  const std::lock_guard lock(mutex_);
  server_address_.reset();
  retire();
}

bool Connection::move_to(Address address, std::uint64_t since) {
  const std::lock_guard lock(mutex_);
  if (!socket_ || socket_->number != since) return false;
  if (address.host.empty()) address.host = socket_->address.host;
  server_address_.move_to(std::move(address));
  retire();
  return true;
}

void Connection::follow(const Address& address) {
  const std::lock_guard lock(mutex_);
  if (socket_ && socket_->address == address) return;
  server_address_.move_to(address);
  retire();
}

std::optional<Address> Connection::address() {
  const std::lock_guard lock(mutex_);
  return socket_ ? std::optional(socket_->address) : std::nullopt;
}

std::size_t Connection::open_sockets() noexcept {
  const Lock lock(mutex_);
  return retired_.size() + (socket_ ? 1 : 0);
}

void Connection::close() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true) || !executor_) return;
    const LockError closed(ErrorCode::aborted, "the client is closed");
    unsent_.fail_all(closed);
    if (socket_) retired_.push_back(std::exchange(socket_, nullptr));
    for (const auto& socket : retired_) socket->sent.fail_all(closed.as_in_doubt());
    if (timer_) timer_->cancel();
    asio::post(strand_, [self = shared_from_this()] {
      const std::lock_guard strand_lock(self->mutex_);
      if (self->connecting_stream_) self->connecting_stream_->close();
      for (const auto& socket : std::exchange(self->retired_, {})) socket->stream->close();
    });
  }
  // Outside the mutex, because listeners take their own.
  std::stop_source(stop_).request_stop();
}

// ---------------------------------------------------------------------------------------------------------------------
// Reading

asio::awaitable<void> Connection::read_replies(const SocketPtr& socket) {
  std::vector<char> buffer(read_bytes);
  std::optional<LockError> error;
  try {
    for (;;) {
      const auto size = co_await socket->stream->read_some(asio::buffer(buffer));
      process_input(socket, {buffer.data(), size});
    }
  } catch (...) {
    error = lost_error(std::current_exception());
  }
  lost(socket, *error);
}

// Callers that get their replies here may send new requests. These are collected and written together.
void Connection::process_input(const SocketPtr& socket, std::string_view bytes) {
  socket->reader.feed(bytes);
  bool collects = false;
  {
    const std::lock_guard lock(mutex_);
    collects = !std::exchange(socket->writing, true);
  }
  while (auto reply = socket->reader.next()) {
    deliver(*socket, *reply);
    if (!collects) continue;
    Lock lock(mutex_);
    if (unsent_.size() < socket->enough_to_send()) continue;
    socket->writing = false;
    flush(lock, socket);
    collects = !std::exchange(socket->writing, true);
  }
  Lock lock(mutex_);
  if (collects) {
    socket->writing = false;
    flush(lock, socket);
  }
  if (socket_ != socket && socket->sent.empty()) socket->stream->close();
}

void Connection::deliver(Socket& socket, Reply& reply) {
  if (events_.message && reply.kind == Reply::Kind::array && !reply.elements.empty() &&
      reply.elements.front().text == "message") {
    return events_.message(reply);
  }
  std::unique_ptr<Suspended> caller;
  {
    const std::lock_guard lock(mutex_);
    // Closing the socket fails all its requests.
    if (closed_) return;
    const auto now = Clock::now();
    const auto request = socket.sent.answered(now);
    round_trip_.measured(now - *request->sent_at());
    if (!std::exchange(socket.has_answered, true)) server_address_.answered();
    caller = request->answer({std::move(reply), socket.number});
  }
  if (caller) caller->resume();
}

void Connection::lost(const SocketPtr& socket, const LockError& error) {
  socket->stream->close();
  {
    const std::lock_guard lock(mutex_);
    if (socket_ == socket) {
      socket_.reset();
      server_address_.lost();
    }
    std::erase(retired_, socket);
    if (!socket->has_answered) server_address_.failed(Clock::now());
    // Requests without a waiting caller, such as subscriptions, were meant for this connection.
    if (!socket_) unsent_.forget_unawaited();
    socket->sent.fail_all(error.as_in_doubt());
    if (!socket_ && !unsent_.empty()) start_connecting();
  }
  if (events_.lost) events_.lost();
}

// ---------------------------------------------------------------------------------------------------------------------
// Writing

// Writes unsent requests, unless another thread is already writing.
void Connection::flush(Lock& lock, const SocketPtr& socket) {
  while (socket_ == socket && !socket->writing && !unsent_.empty()) {
    socket->writing = true;
    auto& output = socket->output;
    socket->sent.take_from(unsent_, output, Clock::now());
    // Written without the mutex, so that other threads can add requests in the meantime.
    lock.unlock();
    output.erase(0, socket->stream->send_now(output));
    lock.lock();
    if (!output.empty()) return async::spawn_on(strand_, write_rest(socket), shared_from_this());
    socket->writing = false;
  }
}

asio::awaitable<void> Connection::write_rest(SocketPtr socket) {
  try {
    for (;;) {
      co_await socket->stream->write(asio::buffer(socket->output));
      const std::lock_guard lock(mutex_);
      socket->output.clear();
      if (socket_ == socket) socket->sent.take_from(unsent_, socket->output, Clock::now());
      if (socket->output.empty()) {
        socket->writing = false;
        co_return;
      }
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    drop(socket);
  }
}

// Under the mutex: writes after all ready handlers have run, because these may have requests, too.
void Connection::flush_soon() {
  if (std::exchange(flush_is_posted_, true)) return;
  asio::post(executor_, [self = shared_from_this()] {
    Lock lock(self->mutex_);
    self->flush_is_posted_ = false;
    if (self->socket_) self->flush(lock, SocketPtr(self->socket_));
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// Deadlines

// Under the mutex: makes sure that deadlines are checked by then.
void Connection::watch(Clock::time_point due) {
  if (due >= timer_due_) return;
  timer_due_ = due;
  if (!timer_) timer_.emplace(strand_);
  timer_->expires_at(due);
  timer_->async_wait([weak = weak_from_this()](const asio::error_code& canceled) {
    if (canceled) return;
    if (const auto self = weak.lock()) self->check_deadlines();
  });
}

void Connection::check_deadlines() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  const auto now = Clock::now();
  timer_due_ = Clock::time_point::max();
  const auto phase = connecting_stream_ ? connecting_stream_->phase() : Stream::Phase::connecting;
  auto next = unsent_.expire(now, socket_ ? "Redis did not reply in time" : message_of_timeout(phase));
  auto connections = retired_;
  if (socket_) connections.push_back(socket_);
  for (const auto& socket : connections) {
    next = std::min(next, socket->sent.expire(now, "Redis did not reply in time"));
    const auto silent_since = socket->sent.silent_since();
    if (!silent_since) continue;
    if (now - *silent_since < options_->silence_timeout) {
      next = std::min(next, *silent_since + options_->silence_timeout);
    } else {
      socket->sent.fail_all(LockError(ErrorCode::service_unavailable,
                                      "Redis sent no reply for longer than silence_timeout; the connection was closed",
                                      Effect::in_doubt));
      drop(socket);
    }
  }
  // At most every few milliseconds, not once for each of many requests.
  constexpr std::chrono::milliseconds min_interval{5};
  if (next != Clock::time_point::max()) {
    watch(std::max(std::min(next, now + options_->silence_timeout), now + min_interval));
  }
}

}  // namespace syncguard::redis
