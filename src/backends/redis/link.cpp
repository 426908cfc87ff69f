#include "backends/redis/link.hpp"

#include "async/patience.hpp"
#include "async/spawn.hpp"
#include "async/wake_up.hpp"
#include "backends/redis/handshake.hpp"

#include <asio/post.hpp>
#include <asio/strand.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace syncguard::redis {
namespace {

// After so long without a word from a server that owes us an answer, the connection is taken for dead.
constexpr std::chrono::seconds longest_silence{10};
constexpr std::size_t read_bytes = 32 * 1024;
static_assert(read_bytes <= ReplyReader::max_bytes);

Address configured_address(const RedisOptions& options) { return {options.host, options.port, options.unix_socket}; }

LockError lost_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const LockError& lock_error) {
    return lock_error;
  } catch (const ProtocolError& protocol_error) {
    return LockError(ErrorCode::internal, std::string("Redis sent what cannot be understood: ") + protocol_error.what(),
                     Effect::none, {.cause = error});
  } catch (const std::exception&) {
    return LockError(ErrorCode::internal, "the connection to Redis failed unexpectedly", Effect::none,
                     {.cause = error});
  }
}

template <typename Handler>
struct SuspendedIn final : Suspended {
  explicit SuspendedIn(Handler&& its_handler) : handler(std::move(its_handler)) {}
  void resume() override { std::move(handler)(); }
  void resume_later() override { asio::post(std::move(handler)); }
  Handler handler;
};

}  // namespace

struct Link::Connection {
  Connection(std::shared_ptr<Stream> its_stream, ReplyReader its_reader)
      : stream(std::move(its_stream)), reader(std::move(its_reader)) {}

  std::uint64_t number = 0;
  bool has_answered = false;
  const std::shared_ptr<Stream> stream;
  // Used by the coroutine that reads alone.
  ReplyReader reader;
  Sent sent{Clock::now()};
  // What is being written. Used by whoever set writing.
  std::string output{};
  bool writing = false;
};

Link::Link(std::shared_ptr<const RedisOptions> options, std::shared_ptr<const Tls> tls, Log log, Events events)
    : options_(std::move(options)),
      tls_(std::move(tls)),
      log_(std::move(log)),
      events_(std::move(events)),
      whereabouts_(configured_address(*options_)) {}

Link::~Link() = default;

void Link::use(const asio::any_io_executor& executor) {
  const std::lock_guard lock(mutex_);
  if (executor_) return;
  executor_ = asio::require(executor, asio::execution::blocking.never);
  strand_ = asio::make_strand(executor_);
}

// ---------------------------------------------------------------------------------------------------------------------
// Requests

asio::awaitable<Link::Answer> Link::call(std::string request_bytes, const CallLimits& limits) {
  const auto self = shared_from_this();
  use(co_await asio::this_coro::executor);
  const auto request = std::make_shared<Request>(std::move(request_bytes), limits.deadline);
  {
    const std::stop_callback on_stop(limits.stop, [self, request] {
      const std::lock_guard lock(self->mutex_);
      request->give_up(ErrorCode::aborted, "a stop was requested");
    });
    // The reply may come, and the coroutine go on and end, before this function has returned: it owns what it touches.
    auto start = [self, request](auto handler) {
      const std::shared_ptr<Link> owner(self);  // NOLINT(performance-unnecessary-copy-initialization): see above
      owner->submit(RequestPtr(request), std::make_unique<SuspendedIn<decltype(handler)>>(std::move(handler)));
    };
    co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(start, asio::use_awaitable);
  }
  co_return request->take_answer();
}

void Link::submit(const RequestPtr& request, std::unique_ptr<Suspended> caller) {
  Lock lock(mutex_);
  request->await(std::move(caller));
  if (closed_) request->give_up(ErrorCode::aborted, "the client is closed");
  if (is_full()) {
    request->give_up(ErrorCode::rate_limited, "too many operations wait for Redis; the option queue sets the limit");
  }
  // Also if it was stopped before it began.
  if (request->is_finished()) return;
  unsent_.add(request);
  watch(request->deadline());
  if (!connection_) {
    start_connecting();
  } else if (async::this_thread_is_about_to_block()) {
    flush(lock, ConnectionPtr(connection_));
  } else {
    flush_soon();
  }
}

bool Link::tell(std::string request_bytes) {
  const std::lock_guard lock(mutex_);
  if (closed_ || !connection_) return false;
  if (is_full()) {
    // What nobody is told now would be missing for ever. On a new connection everybody begins anew.
    drop(ConnectionPtr(connection_));
    return false;
  }
  unsent_.add(std::make_shared<Request>(std::move(request_bytes), Clock::time_point::max()));
  flush_soon();
  return true;
}

// Under the mutex.
bool Link::is_full() {
  const auto under_way = [this] { return unsent_.size() + (connection_ ? connection_->sent.size() : 0); };
  if (under_way() < options_->queue) return false;
  unsent_.forget_finished();
  return under_way() >= options_->queue;
}

// ---------------------------------------------------------------------------------------------------------------------
// Connecting

// Under the mutex.
void Link::start_connecting() {
  if (connecting_ || closed_) return;
  connecting_ = true;
  async::spawn_on(strand_, run_connection(), shared_from_this());
}

asio::awaitable<void> Link::run_connection() {
  ConnectionPtr connection;
  std::optional<LockError> failure;
  try {
    connection = co_await connect();
  } catch (...) {
    failure = lost_error(std::current_exception());
  }
  {
    Lock lock(mutex_);
    connecting_ = false;
    connecting_stream_.reset();
    if (closed_) {
      if (connection) connection->stream->close();
      co_return;
    }
    if (failure) {
      whereabouts_.failed(Clock::now());
      whereabouts_.go_home();
      unsent_.fail_all(*failure);
      co_return;
    }
    connection->number = ++connections_made_;
    connection_ = connection;
    flush(lock, connection);
  }
  co_await read_replies(connection);
}

asio::awaitable<Link::ConnectionPtr> Link::connect() {
  Address address;
  std::shared_ptr<Stream> stream;
  Clock::time_point begin;
  {
    const std::lock_guard lock(mutex_);
    stream = connecting_stream_ = std::make_shared<Stream>(strand_, tls_.get());
    begin = whereabouts_.next_attempt();
    address = whereabouts_.address();
  }
  const auto pause = std::make_shared<async::WakeUp>();
  if (co_await pause->wait(begin, stop_.get_token()) == async::WakeUp::Reason::stopped) {
    throw LockError(ErrorCode::aborted, "the client is closed");
  }

  const auto deadline = Clock::now() + options_->connect_timeout;
  const async::Patience patience(strand_, deadline, [stream] { stream->close(); });
  try {
    const CallLimits limits{stop_.get_token(), deadline};
    co_await stream->connect(address, options_->keep_alive, limits);
    auto reader = co_await shake_hands(*stream, *options_, log_);
    if (!patience.ran_out()) co_return std::make_shared<Connection>(std::move(stream), std::move(reader));
  } catch (const LockError&) {
    stream->close();
    if (!patience.ran_out()) throw;
  }
  throw LockError(ErrorCode::network_timeout, "Redis could not be connected to in time");
}

// Under the mutex: what comes next goes on a new connection; this one is closed when everything on it is answered.
void Link::retire() {
  const auto connection = std::exchange(connection_, nullptr);
  if (!connection) return;
  retired_.push_back(connection);
  if (connection->sent.empty()) asio::post(strand_, [stream = connection->stream] { stream->close(); });
  if (!unsent_.empty()) start_connecting();
}

// Under the mutex: nothing comes on this connection any more. Its reader finds out, and tells everybody.
void Link::drop(const ConnectionPtr& connection) {
  if (connection_ == connection) {
    connection_.reset();
    retired_.push_back(connection);
  }
  asio::post(strand_, [stream = connection->stream] { stream->close(); });
}

bool Link::reconnect(std::uint64_t since) {
  const std::lock_guard lock(mutex_);
  if (!connection_ || connection_->number != since) return false;
  whereabouts_.failed(Clock::now());
  whereabouts_.go_home();
  retire();
  return true;
}

void Link::reconnect() {
  const std::lock_guard lock(mutex_);
  whereabouts_.go_home();
  retire();
}

bool Link::move_to(Address address, std::uint64_t since) {
  const std::lock_guard lock(mutex_);
  if (!connection_ || connection_->number != since) return false;
  whereabouts_.move_to(std::move(address));
  retire();
  return true;
}

void Link::follow(Address address) {
  const std::lock_guard lock(mutex_);
  const auto& current = whereabouts_.address();
  if (address.host == current.host && address.port == current.port) return;
  whereabouts_.move_to(std::move(address));
  retire();
}

Address Link::address() {
  const std::lock_guard lock(mutex_);
  return whereabouts_.address();
}

void Link::close() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true) || !executor_) return;
    const LockError closed(ErrorCode::aborted, "the client is closed");
    unsent_.fail_all(closed);
    if (connection_) retired_.push_back(std::exchange(connection_, nullptr));
    for (const auto& connection : retired_) connection->sent.fail_all(closed.as_in_doubt());
    if (timer_) timer_->cancel();
    asio::post(strand_, [self = shared_from_this()] {
      const std::lock_guard strand_lock(self->mutex_);
      if (self->connecting_stream_) self->connecting_stream_->close();
      for (const auto& connection : std::exchange(self->retired_, {})) connection->stream->close();
    });
  }
  // Outside: whoever is told does so under its own lock.
  std::stop_source(stop_).request_stop();
}

// ---------------------------------------------------------------------------------------------------------------------
// Reading

asio::awaitable<void> Link::read_replies(const ConnectionPtr& connection) {
  std::vector<char> buffer(read_bytes);
  std::optional<LockError> error;
  try {
    for (;;) {
      const auto size = co_await connection->stream->read_some(asio::buffer(buffer));
      take_in(connection, {buffer.data(), size});
    }
  } catch (...) {
    error = lost_error(std::current_exception());
  }
  lost(connection, *error);
}

// Threads that are woken send their next requests at once: these are collected and written together.
void Link::take_in(const ConnectionPtr& connection, std::string_view bytes) {
  connection->reader.feed(bytes);
  bool collects = false;
  {
    const std::lock_guard lock(mutex_);
    collects = !std::exchange(connection->writing, true);
  }
  while (auto reply = connection->reader.next()) deliver(*connection, *reply);
  Lock lock(mutex_);
  if (collects) {
    connection->writing = false;
    flush(lock, connection);
  }
  if (connection_ != connection && connection->sent.empty()) connection->stream->close();
}

void Link::deliver(Connection& connection, Reply& reply) {
  if (events_.message && reply.kind == Reply::Kind::array && !reply.elements.empty() &&
      reply.elements.front().text == "message") {
    return events_.message(reply);
  }
  std::unique_ptr<Suspended> caller;
  {
    const std::lock_guard lock(mutex_);
    // When it is closed, all requests are given up.
    if (closed_) return;
    const auto request = connection.sent.answered(Clock::now());
    if (!std::exchange(connection.has_answered, true)) whereabouts_.answered();
    caller = request->answer({std::move(reply), connection.number});
  }
  if (caller) caller->resume();
}

void Link::lost(const ConnectionPtr& connection, const LockError& error) {
  connection->stream->close();
  {
    const std::lock_guard lock(mutex_);
    if (connection_ == connection) connection_.reset();
    std::erase(retired_, connection);
    if (!connection->has_answered) whereabouts_.failed(Clock::now());
    // What was only told was for this connection, unless there is another already.
    if (!connection_) unsent_.forget_unawaited();
    connection->sent.fail_all(error.as_in_doubt());
    if (!connection_ && !unsent_.empty()) start_connecting();
  }
  if (events_.lost) events_.lost();
}

// ---------------------------------------------------------------------------------------------------------------------
// Writing

// Writes what is unsent, unless somebody else is about to.
void Link::flush(Lock& lock, const ConnectionPtr& connection) {
  while (connection_ == connection && !connection->writing && !unsent_.empty()) {
    connection->writing = true;
    auto& output = connection->output;
    connection->sent.take_from(unsent_, output, Clock::now());
    // The socket takes it without the mutex: meanwhile, others can add to what is unsent.
    lock.unlock();
    output.erase(0, connection->stream->send_now(output));
    lock.lock();
    if (!output.empty()) return async::spawn_on(strand_, write_rest(connection), shared_from_this());
    connection->writing = false;
  }
}

asio::awaitable<void> Link::write_rest(ConnectionPtr connection) {
  try {
    for (;;) {
      co_await connection->stream->write(asio::buffer(connection->output));
      const std::lock_guard lock(mutex_);
      connection->output.clear();
      if (connection_ == connection) connection->sent.take_from(unsent_, connection->output, Clock::now());
      if (connection->output.empty()) {
        connection->writing = false;
        co_return;
      }
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    drop(connection);
  }
}

// Under the mutex: whatever else can run now may have requests, too.
void Link::flush_soon() {
  if (std::exchange(flush_is_posted_, true)) return;
  asio::post(executor_, [self = shared_from_this()] {
    Lock lock(self->mutex_);
    self->flush_is_posted_ = false;
    if (self->connection_) self->flush(lock, ConnectionPtr(self->connection_));
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// Deadlines

// Under the mutex: makes sure that deadlines are looked at by then.
void Link::watch(Clock::time_point due) {
  if (due >= timer_due_) return;
  timer_due_ = due;
  if (!timer_) timer_.emplace(strand_);
  timer_->expires_at(due);
  timer_->async_wait([weak = weak_from_this()](const asio::error_code& cancelled) {
    if (cancelled) return;
    if (const auto self = weak.lock()) self->look_at_deadlines();
  });
}

void Link::look_at_deadlines() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  const auto now = Clock::now();
  timer_due_ = Clock::time_point::max();
  auto next = unsent_.expire(now);
  auto connections = retired_;
  if (connection_) connections.push_back(connection_);
  for (const auto& connection : connections) {
    next = std::min(next, connection->sent.expire(now));
    const auto silent_since = connection->sent.silent_since();
    if (!silent_since) continue;
    if (now - *silent_since < longest_silence) {
      next = std::min(next, *silent_since + longest_silence);
    } else {
      connection->sent.fail_all(LockError(ErrorCode::service_unavailable,
                                          "Redis has not said a word for too long: the connection is given up",
                                          Effect::in_doubt));
      drop(connection);
    }
  }
  // Not for each of many requests apart.
  constexpr std::chrono::milliseconds least{5};
  if (next != Clock::time_point::max()) watch(std::max(next, now + least));
}

}  // namespace syncguard::redis
