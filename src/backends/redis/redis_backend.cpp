#include "async/event.hpp"
#include "backends/redis/diagnosis.hpp"
#include "backends/redis/scripts.hpp"
#include "backends/redis/session.hpp"
#include "core/durations.hpp"
#include "core/encodings.hpp"
#include "core/expiry.hpp"
#include "core/validation.hpp"

#include <syncguard/liveness.hpp>
#include <syncguard/redis.hpp>

#include <asio/this_coro.hpp>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace syncguard {
inline namespace v0_1 {
namespace {

using redis::Arguments;
using redis::Reply;
using redis::Session;
using std::chrono::milliseconds;

std::string milliseconds_of(milliseconds duration) { return std::to_string(duration.count()); }

std::string json_string(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (byte < 0x20) {
      json += "\\u00" + core::hexadecimal({&byte, 1});
    } else {
      json += c;
    }
  }
  return json += '"';
}

class RedisTicket : public WaitTicket {
 public:
  RedisTicket(const asio::any_io_executor& executor, std::shared_ptr<Session> session, Key key, const LockId& waiter,
              std::function<void()> wake)
      : session_(std::move(session)), key_(std::move(key)), waiter_(waiter) {
    auto forget_place_and_wake = [session = session_, waiter, wake = std::move(wake)] {
      session->turn_poll().forget_place(waiter);
      wake();
    };
    session_->wake_listener().add(executor, waiter_, session_->names().lock(key_), std::move(forget_place_and_wake));
  }
  ~RedisTicket() override { stop_listening(); }

  asio::awaitable<void> rejoin(const CallLimits& limits) override {
    const auto& names = session_->names();
    auto& connection = session_->connection_for(waiter_);
    if (const auto address = connection.address()) session_->wake_listener().follow(*address);
    // Subscribed first: a waiter that is in the queue without being subscribed is taken for dead.
    co_await session_->wake_listener().subscribe(waiter_, names.lock(key_), limits);
    // The time that an attempt takes, with min_replicas on a connection of its own.
    const auto reservation = session_->granting_connection_for(waiter_).round_trip().reservation();
    const Arguments arguments({names.queue(key_)}, {waiter_.view(), milliseconds_of(reservation)});
    const Reply place = co_await session_->run(connection, redis::scripts().join, arguments, limits);
    is_in_queue_ = !place.text.empty();
    const auto executor = co_await asio::this_coro::executor;
    watch_turn(executor, reservation);
    session_->turn_poll().set_place(waiter_, place.text);
  }

  // False if another application's value has the queue's name.
  [[nodiscard]] bool is_in_queue() const noexcept { return is_in_queue_; }

  asio::awaitable<void> leave(const CallLimits& limits) override {
    stop_listening();
    const Arguments arguments = leave_arguments();
    co_await session_->run(session_->connection_for(waiter_), redis::scripts().leave, arguments, limits);
  }

  // Leaves without waiting for that, if there is a connection.
  void leave_without_waiting() {
    stop_listening();
    session_->connection_for(waiter_).send_without_reply(leave_arguments().by_text(redis::scripts().leave));
  }

 private:
  void stop_listening() {
    session_->turn_poll().remove(waiter_);
    session_->wake_listener().remove(waiter_);
  }

  void watch_turn(const asio::any_io_executor& executor, milliseconds reservation) {
    const auto run = [session = session_, waiter = waiter_](const Arguments& arguments) {
      return poll_turns(session, waiter, arguments);
    };
    const auto wake = [session = session_](const LockId& id) { session->wake_listener().wake(id); };
    session_->turn_poll().add(executor, {.run = run, .wake = wake}, waiter_, {.key = key_, .reservation = reservation});
  }

  static asio::awaitable<Reply> poll_turns(std::shared_ptr<Session> session, LockId waiter,
                                           const Arguments& arguments) {
    const CallLimits limits{{}, std::chrono::steady_clock::now() + session->options().operation_timeout};
    co_return co_await session->run(session->connection_for(waiter), redis::scripts().poll, arguments, limits);
  }

  [[nodiscard]] Arguments leave_arguments() const {
    const auto& names = session_->names();
    return {{names.queue(key_), names.turn(key_), names.lock(key_)}, {waiter_.view(), names.wake_root()}};
  }

  const std::shared_ptr<Session> session_;
  const Key key_;
  const LockId waiter_;
  bool is_in_queue_ = false;
};

class RedisBackend : public Backend {
 public:
  RedisBackend(RedisOptions options, const Log& log) : session_(std::make_shared<Session>(std::move(options), log)) {}
  ~RedisBackend() override { session_->close(); }

  [[nodiscard]] Capabilities capabilities() const override {
    return {.name = "redis",
            .fences = session_->options().fences,
            .operation_timeout = session_->options().operation_timeout};
  }
  [[nodiscard]] std::size_t connections() const noexcept override { return session_->open_sockets(); }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    const auto& names = session_->names();
    const auto lock = names.lock(request.key);
    const bool waits = session_->wake_listener().contains(request.lock_id);
    Arguments arguments(waits ? 5 : 4);
    arguments.add({lock, names.fence(lock), names.turn(request.key), names.index(request.lock_id)});
    if (waits) arguments.add({names.queue(request.key)});
    arguments.add({request.lock_id.view(), milliseconds_of(request.ttl), milliseconds_of(request.ttl + tolerance),
                   json_string(request.key.str()),
                   session_->options().fences == FenceSource::clock ? "clock" : "counter",
                   request.holder.empty() ? "" : ",\"holder\":" + json_string(request.holder),
                   session_->options().min_replicas > 0 ? "confirm" : ""});
    const Reply reply = co_await session_->grant(request.lock_id, redis::scripts().acquire, arguments, limits);
    co_return redis::acquire_reply(reply);
  }

  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    const Arguments arguments = release_arguments(id);
    const Reply reply =
        co_await session_->run(session_->connection_for(id), redis::scripts().release, arguments, limits);
    co_return redis::release_reply(reply);
  }

  asio::awaitable<void> retract(const AcquireRequest& request, const CallLimits& limits) override {
    const auto& id = request.lock_id;
    const Arguments arguments = release_arguments(id);
    co_await session_->run(session_->granting_connection_for(id), redis::scripts().release, arguments, limits);
  }

  asio::awaitable<ExtendReply> extend(const LockId& id, milliseconds ttl, const CallLimits& limits) override {
    const Arguments arguments({session_->names().index(id)},
                              {id.view(), milliseconds_of(ttl), milliseconds_of(ttl + tolerance)});
    const Reply reply = co_await session_->grant(id, redis::scripts().extend, arguments, limits);
    co_return redis::extend_reply(reply);
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    const auto lock = session_->names().lock(key);
    const Arguments arguments({lock}, {});
    const Reply reply =
        co_await session_->run(session_->connection_for(key), redis::scripts().is_locked, arguments, limits);
    const bool locked = redis::is_locked_reply(reply);
    if (!locked && session_->options().cleanup_in_is_locked &&
        cleanup_pace_.may_clean_up(std::chrono::steady_clock::now())) {
      // In the background: the caller already has its result.
      const Arguments removal_arguments({lock}, {session_->names().index_root()});
      session_->connection_for(key).send_without_reply(removal_arguments.by_text(redis::scripts().remove_dead));
    }
    co_return locked;
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    const Arguments arguments({session_->names().lock(key)}, {});
    const Reply reply =
        co_await session_->run(session_->connection_for(key), redis::scripts().lookup_key, arguments, limits);
    co_return redis::lookup_reply(reply);
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    const Arguments arguments({session_->names().index(id)}, {id.view()});
    const Reply reply =
        co_await session_->run(session_->connection_for(id), redis::scripts().lookup_id, arguments, limits);
    co_return redis::lookup_reply(reply);
  }

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const Key& key, const LockId& waiter, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    if (!session_->names().have_queues()) co_return nullptr;
    const auto executor = co_await asio::this_coro::executor;
    auto ticket = std::make_unique<RedisTicket>(executor, session_, key, waiter, std::move(wake));
    try {
      co_await ticket->rejoin(limits);
    } catch (const LockError&) {
      // It may still have joined the queue, and nothing else would remove its entry.
      ticket->leave_without_waiting();
      throw;
    }
    if (!ticket->is_in_queue()) ticket.reset();
    co_return ticket;
  }

  asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& limits) override {
    co_return co_await redis::diagnose(*session_, limits);
  }

  asio::awaitable<CleanupReply> clean_up(const CleanupRequest& /*request*/, const CallLimits& limits) override {
    async::expect_no_stop(limits.stop);
    CleanupReply reply;
    reply.nothing_to_do = "Redis removes locks by itself one second after they expired";
    co_return reply;
  }

  asio::awaitable<LockPage> list(const ListRequest& request, const CallLimits& limits) override {
    constexpr int max_steps = 20;
    // The reply to a step must not be too long.
    constexpr std::size_t step_size = 50;
    constexpr std::size_t max_cursor_size = 20;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (request.cursor.size() > max_cursor_size || !std::ranges::all_of(request.cursor, is_digit)) {
      throw LockError(ErrorCode::invalid_argument, "the cursor is not from a page of this store");
    }
    const auto& names = session_->names();
    const auto any = LockId::generate();
    const auto pattern = names.lock_pattern(request.prefix);
    LockPage page;
    page.cursor = request.cursor;
    // SCAN may return a name twice.
    std::set<std::string> seen;
    for (int step = 0; step < max_steps && page.locks.size() < request.limit; ++step) {
      const auto count = std::min(step_size, request.limit - page.locks.size());
      Arguments arguments({names.index(any)},
                          {page.cursor.empty() ? "0" : page.cursor, pattern, std::to_string(count), names.lock_root()});
      if (names.have_queues()) arguments.add({names.queue_root()});
      const Reply reply =
          co_await session_->run(session_->connection_for(any), redis::scripts().list, arguments, limits);
      auto found = redis::list_reply(reply);
      page.now = found.now;
      for (auto& [lock, name] : found.locks) {
        if (!lock.key.str().starts_with(request.prefix) || !is_at(lock.key, name)) continue;
        if (seen.insert(lock.key.str()).second) page.locks.push_back(std::move(lock));
      }
      page.cursor = found.cursor == "0" ? "" : std::move(found.cursor);
      if (page.cursor.empty()) break;
    }
    co_return page;
  }

  asio::awaitable<KeyState> inspect(const Key& key, const CallLimits& limits) override {
    const auto& names = session_->names();
    const auto lock = names.lock(key);
    Arguments arguments(names.have_queues() ? 3 : 2);
    arguments.add({lock, names.fence(lock)});
    if (names.have_queues()) arguments.add({names.queue(key)});
    const Reply reply =
        co_await session_->run(session_->connection_for(key), redis::scripts().inspect, arguments, limits);
    co_return redis::inspect_reply(reply);
  }

  asio::awaitable<bool> break_lock(const Key& key, Fence fence, const CallLimits& limits) override {
    const auto& names = session_->names();
    Arguments arguments({names.lock(key)}, {fence.str(), names.index_root()});
    add_queue_roots(arguments);
    const Reply reply =
        co_await session_->run(session_->connection_for(key), redis::scripts().break_lock, arguments, limits);
    co_return redis::break_lock_reply(reply);
  }

  asio::awaitable<Fence> raise_fence(const Key& key, Fence fence, const CallLimits& limits) override {
    const auto& names = session_->names();
    const Arguments arguments({names.fence(names.lock(key))}, {std::to_string(fence.value())});
    const Reply reply =
        co_await session_->run(session_->connection_for(key), redis::scripts().raise_fence, arguments, limits);
    co_return redis::raise_fence_reply(reply);
  }

  asio::awaitable<void> close(const CallLimits& /*limits*/) override {
    session_->close();
    co_return;
  }

 private:
  [[nodiscard]] Arguments release_arguments(const LockId& id) const {
    Arguments arguments({session_->names().index(id)}, {id.view()});
    add_queue_roots(arguments);
    return arguments;
  }

  // The common beginnings of the names of queues, turns and channels, for scripts that pass a turn.
  void add_queue_roots(Arguments& arguments) const {
    const auto& names = session_->names();
    if (names.have_queues()) arguments.add({names.queue_root(), names.turn_root(), names.wake_root()});
  }

  // Whether a lock of this key is stored under this name; empty: the usual one. Another program may have stored a
  // lock's document anywhere.
  [[nodiscard]] bool is_at(const Key& key, const std::string& name) const {
    try {
      const auto expected = session_->names().lock(key);
      return name.empty() ? expected == session_->names().lock_root() + key.str() : expected == name;
    } catch (const LockError&) {
      return false;
    }
  }

  const std::shared_ptr<Session> session_;
  core::CleanupPace cleanup_pace_;
};

void validate(const RedisOptions& options) {
  using core::refuse;
  constexpr std::size_t max_min_replicas = 16;
  const auto is_incomplete = [](const std::string& host, std::uint16_t port) { return host.empty() || port == 0; };
  if (options.unix_socket.empty() && is_incomplete(options.host, options.port)) refuse("Redis needs a host and a port");
  for (const auto& [host, port] : options.more_addresses) {
    if (is_incomplete(host, port)) refuse("each of several Redis servers needs a host and a port");
  }
  if (!options.unix_socket.empty() && (options.sentinel || !options.more_addresses.empty())) {
    refuse("a Unix socket leads to one Redis server: it cannot be combined with Sentinels or further addresses");
  }
  if (options.sentinel && options.sentinel->master.empty()) {
    refuse("Sentinel needs the name of the master, as in redis+sentinel://host:26379/mymaster");
  }
  if (options.sentinel && options.sentinel->timeout <= milliseconds(0)) refuse("sentinel_timeout must be positive");
  if (options.database < 0) refuse("the Redis database must be a number from 0");
  if (options.connect_timeout <= milliseconds(0)) refuse("connect_timeout must be positive");
  if (options.operation_timeout <= milliseconds(0)) refuse("operation_timeout must be positive");
  if (options.silence_timeout <= milliseconds(0)) refuse("silence_timeout must be positive");
  // The range that the system accepts.
  constexpr std::chrono::seconds max_keep_alive{32767};
  if (options.keep_alive < std::chrono::seconds(1) || options.keep_alive > max_keep_alive) {
    refuse("keep_alive must be from one to 32767 seconds");
  }
  if (options.min_replicas > max_min_replicas) refuse("min_replicas must be from 0 to 16");
  if (options.min_replicas > 0) {
    // WAIT takes zero for forever.
    if (options.replica_timeout <= milliseconds(0)) refuse("replica_timeout must be positive");
    if (options.replica_timeout > options.operation_timeout) {
      refuse("replica_timeout must not be longer than operation_timeout");
    }
    if (options.replica_timeout >= options.silence_timeout) {
      refuse("replica_timeout must be shorter than silence_timeout");
    }
  }
  const auto is_graphic = [](char c) { return c > ' ' && c <= '~'; };
  if (!std::ranges::all_of(options.client_name, is_graphic))
    refuse("client_name must not contain spaces or special characters");
  if (options.connections == 0) refuse("connections must be positive");
  if (options.queue == 0) refuse("queue must be positive");
}

}  // namespace

std::unique_ptr<Backend> make_redis_backend(RedisOptions options, Log log) {
  validate(options);
  options.connect_timeout = core::bounded(options.connect_timeout);
  options.operation_timeout = core::bounded(options.operation_timeout);
  options.silence_timeout = core::bounded(options.silence_timeout);
  options.replica_timeout = core::bounded(options.replica_timeout);
  if (options.sentinel) options.sentinel->timeout = core::bounded(options.sentinel->timeout);
  return std::make_unique<RedisBackend>(std::move(options), log);
}

}  // namespace v0_1
}  // namespace syncguard
