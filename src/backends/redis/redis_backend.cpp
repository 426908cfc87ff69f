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

using backends::Waiters;
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
  RedisTicket(std::shared_ptr<Session> session, Key key, const LockId& waiter, std::function<void()> wake)
      : session_(std::move(session)), key_(std::move(key)), waiter_(waiter) {
    session_->wake_listener().add(waiter_, key_, std::move(wake));
  }
  ~RedisTicket() override { session_->wake_listener().remove(waiter_, key_); }

  asio::awaitable<void> rejoin(const CallLimits& limits) override {
    const auto& names = session_->names();
    auto& connection = session_->connection_for(waiter_);
    if (const auto address = connection.address()) session_->wake_listener().follow(*address);
    // Subscribed first: a waiter that is in the queue without being subscribed is taken for dead.
    co_await session_->wake_listener().subscribe(waiter_, names.lock(key_), limits);
    // The time that an attempt takes, with min_replicas on a connection of its own.
    const auto reservation = session_->granting_connection_for(waiter_).round_trip().reservation();
    const auto place = session_->waiters().place(waiter_);
    const Arguments arguments({names.queue(key_), names.turn(key_), names.lock(key_)},
                              {waiter_.view(), milliseconds_of(reservation), place ? std::to_string(*place) : ""});
    const Reply reply = co_await session_->run(connection, redis::scripts().join, arguments, limits);
    const auto standing = redis::join_reply(reply);
    is_in_queue_ = standing.has_value();
    if (!standing) co_return;
    free_in_ = standing->reply.free_in;
    session_->waiters().joined(waiter_, standing->reply, reservation, standing->crowd);
    const auto executor = co_await asio::this_coro::executor;
    session_->looks().start(executor, [weak = std::weak_ptr(session_)](std::vector<Waiters::Look> due) {
      return look(weak.lock(), std::move(due));
    });
  }

  // False if another application's value has the queue's name.
  [[nodiscard]] bool is_in_queue() const noexcept { return is_in_queue_; }

  [[nodiscard]] std::optional<milliseconds> free_in() const noexcept override { return free_in_; }
  [[nodiscard]] bool notices_expiry() const noexcept override { return true; }

  asio::awaitable<void> leave(const CallLimits& limits) override {
    session_->wake_listener().remove(waiter_, key_);
    const Arguments arguments = leave_arguments(*session_, key_, waiter_);
    co_await session_->run(session_->connection_for(waiter_), redis::scripts().leave, arguments, limits);
  }

  // Leaves without waiting for that, if there is a connection.
  void leave_without_waiting() {
    session_->wake_listener().remove(waiter_, key_);
    leave_without_waiting(*session_, key_, waiter_);
  }

 private:
  // A static function, because the ticket may be gone.
  static asio::awaitable<void> look(std::shared_ptr<Session> session, std::vector<Waiters::Look> due) {
    if (!session) co_return;
    try {
      const auto& names = session->names();
      Arguments arguments(due.size() * 3);
      for (const auto& look : due) arguments.add({names.lock(look.key), names.turn(look.key), names.queue(look.key)});
      for (const auto& look : due) arguments.add({look.id.view(), std::to_string(look.place)});
      const CallLimits limits{{}, std::chrono::steady_clock::now() + session->options().operation_timeout};
      const Reply reply =
          co_await session->run(session->connection_for(due.front().id), redis::scripts().look, arguments, limits);
      const auto standings = redis::look_reply(reply, due.size());
      for (std::size_t i = 0; i < due.size(); ++i) {
        const auto& [id, key, reservation, place] = due[i];
        session->waiters().looked(id, standings[i].reply, standings[i].crowd);
        // It left, perhaps just before this look brought it back.
        if (!session->waiters().contains(id)) leave_without_waiting(*session, key, id);
      }
      const auto executor = co_await asio::this_coro::executor;
      session->wake_listener().renew_subscriptions(executor, std::move(due));
    } catch (const LockError& error) {
      // Not reported: the waiters' own attempts meet the same error and report it.
      session->log().debug(std::string("looking at awaited keys failed: ") + error.what());
      for (const auto& look : due) session->waiters().look_later(look.id);
    }
  }

  static Arguments leave_arguments(const Session& session, const Key& key, const LockId& waiter) {
    const auto& names = session.names();
    return {{names.queue(key), names.turn(key), names.lock(key)}, {waiter.view(), names.wake_root()}};
  }
  static void leave_without_waiting(const Session& session, const Key& key, const LockId& waiter) {
    session.connection_for(waiter).send_without_reply(
        leave_arguments(session, key, waiter).by_text(redis::scripts().leave));
  }

  const std::shared_ptr<Session> session_;
  const Key key_;
  const LockId waiter_;
  bool is_in_queue_ = false;
  std::optional<milliseconds> free_in_;
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
    Arguments arguments(5);
    arguments.add(
        {lock, names.fence(lock), names.turn(request.key), names.index(request.lock_id), names.queue(request.key)});
    arguments.add({request.lock_id.view(), milliseconds_of(request.ttl), milliseconds_of(request.ttl + tolerance),
                   json_string(request.key.str()),
                   session_->options().fences == FenceSource::clock ? "clock" : "counter",
                   request.holder.empty() ? "" : ",\"holder\":" + json_string(request.holder),
                   session_->options().min_replicas > 0 ? "confirm" : "",
                   session_->waiters().contains(request.lock_id) ? "waits" : ""});
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

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const AcquireRequest& request, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    if (!session_->names().have_queues()) co_return nullptr;
    auto ticket = std::make_unique<RedisTicket>(session_, request.key, request.lock_id, std::move(wake));
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
