#include "backends/redis/diagnosis.hpp"
#include "backends/redis/server.hpp"
#include "core/bounded.hpp"
#include "core/cleanup_pace.hpp"
#include "core/fence_limit.hpp"
#include "core/hexadecimal.hpp"
#include "core/liveness.hpp"

#include <syncguard/redis.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace syncguard {
namespace {

using redis::Arguments;
using redis::Reply;
using redis::Server;
using std::chrono::milliseconds;

[[noreturn]] void refuse_reply() {
  throw LockError(ErrorCode::internal, "Redis answered something that its scripts never do", Effect::in_doubt);
}

[[noreturn]] void refuse_foreign() {
  throw LockError(ErrorCode::internal,
                  "what Redis stores in this lock's place is no lock; somebody else uses the same prefix");
}

// What a script says first.
enum class Verdict { yes = 1, no = 0, not_found = -1, expired = -2, foreign = -3, counter_at_end = -4 };

Verdict verdict_of(const Reply& reply) {
  const Reply& first = reply.kind == Reply::Kind::array && !reply.elements.empty() ? reply.elements.front() : reply;
  if (first.kind != Reply::Kind::integer || first.integer < -4 || first.integer > 1) refuse_reply();
  const auto verdict = static_cast<Verdict>(first.integer);
  if (verdict == Verdict::foreign) refuse_foreign();
  return verdict;
}

std::int64_t integer_at(const Reply& reply, std::size_t position) {
  if (reply.elements.size() <= position || reply.elements[position].kind != Reply::Kind::integer) refuse_reply();
  return reply.elements[position].integer;
}

milliseconds duration_at(const Reply& reply, std::size_t position) { return milliseconds(integer_at(reply, position)); }
Timestamp time_at(const Reply& reply, std::size_t position) { return Timestamp(duration_at(reply, position)); }

Missing missing(Verdict verdict) { return verdict == Verdict::expired ? Missing::expired : Missing::not_found; }

// A lock as others may have written it, too.
std::optional<LockRecord> record_of(const Reply& reply) {
  if (verdict_of(reply) != Verdict::yes) return std::nullopt;
  constexpr std::size_t fields = 6;
  if (reply.elements.size() != fields) refuse_foreign();
  try {
    return LockRecord{.key = reply.elements[1].text,
                      .lock_id = LockId(reply.elements[2].text),
                      .expires_at = time_at(reply, 3),
                      .acquired_at = time_at(reply, 4),
                      .fence = Fence::parse(reply.elements[5].text)};
  } catch (const LockError&) {
    refuse_foreign();
  }
}

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
  RedisTicket(std::shared_ptr<Server> server, Key key, const LockId& waiter, std::function<void()> wake)
      : server_(std::move(server)), key_(std::move(key)), waiter_(waiter), wake_(std::move(wake)) {}
  ~RedisTicket() override { server_->subscriber().remove(waiter_); }

  asio::awaitable<void> rejoin(const CallLimits& limits) override {
    const auto& names = server_->names();
    // Where the scripts publish: in a cluster that is one node.
    server_->subscriber().follow(server_->link_of(waiter_).address());
    // Subscribed first: who is in the queue without being subscribed is taken for dead.
    co_await server_->subscriber().add(waiter_, names.lock(key_), wake_, limits);
    const Arguments arguments({names.queue(key_)}, {waiter_.view()});
    co_await server_->run(server_->link_of(waiter_), redis::scripts().join, arguments, limits);
  }

  asio::awaitable<void> leave(const CallLimits& limits) override {
    server_->subscriber().remove(waiter_);
    const Arguments arguments = of_leaving();
    co_await server_->run(server_->link_of(waiter_), redis::scripts().leave, arguments, limits);
  }

  // Leaves without waiting for that, if there is a connection.
  void leave_untold() {
    server_->subscriber().remove(waiter_);
    server_->link_of(waiter_).tell(of_leaving().by_text(redis::scripts().leave));
  }

 private:
  [[nodiscard]] Arguments of_leaving() const {
    const auto& names = server_->names();
    return {{names.queue(key_), names.turn(key_)}, {waiter_.view(), names.wake_root()}};
  }

  const std::shared_ptr<Server> server_;
  const Key key_;
  const LockId waiter_;
  const std::function<void()> wake_;
};

class RedisBackend : public Backend {
 public:
  RedisBackend(RedisOptions options, const Log& log) : server_(std::make_shared<Server>(std::move(options), log)) {}
  ~RedisBackend() override { server_->close(); }

  [[nodiscard]] Capabilities capabilities() const override {
    return {.name = "redis", .operation_timeout = server_->options().operation_timeout};
  }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    const auto& names = server_->names();
    const auto lock = names.lock(request.key);
    const bool waits = server_->subscriber().contains(request.lock_id);
    Arguments arguments(waits ? 5 : 4);
    arguments.add({lock, names.fence(lock), names.turn(request.key), names.index(request.lock_id)});
    if (waits) arguments.add({names.queue(request.key)});
    arguments.add({request.lock_id.view(), milliseconds_of(request.ttl), milliseconds_of(request.ttl + core::tolerance),
                   json_string(request.key.str())});
    const Reply reply =
        co_await server_->run(server_->link_of(request.lock_id), redis::scripts().acquire, arguments, limits);
    switch (verdict_of(reply)) {
      case Verdict::yes:
        co_return Granted{fence_at(reply, 1), time_at(reply, 2), duration_at(reply, 3)};
      case Verdict::no:
        co_return Contended{duration_at(reply, 1)};
      case Verdict::counter_at_end:
        throw core::counter_at_end();
      default:
        refuse_reply();
    }
  }

  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    const auto& names = server_->names();
    Arguments arguments({names.index(id)}, {id.view()});
    if (names.have_queues()) arguments.add({names.queue_root(), names.turn_root(), names.wake_root()});
    const Reply reply = co_await server_->run(server_->link_of(id), redis::scripts().release, arguments, limits);
    const auto verdict = verdict_of(reply);
    if (verdict == Verdict::yes) co_return Released{};
    co_return missing(verdict);
  }

  asio::awaitable<ExtendReply> extend(const LockId& id, milliseconds ttl, const CallLimits& limits) override {
    const Arguments arguments({server_->names().index(id)},
                              {id.view(), milliseconds_of(ttl), milliseconds_of(ttl + core::tolerance)});
    const Reply reply = co_await server_->run(server_->link_of(id), redis::scripts().extend, arguments, limits);
    const auto verdict = verdict_of(reply);
    if (verdict == Verdict::yes) co_return Extended{time_at(reply, 1), duration_at(reply, 2)};
    co_return missing(verdict);
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    const auto lock = server_->names().lock(key);
    const Arguments arguments({lock}, {});
    const Reply reply = co_await server_->run(server_->link_of(key), redis::scripts().is_locked, arguments, limits);
    const bool locked = verdict_of(reply) == Verdict::yes;
    if (!locked && server_->options().cleanup_in_is_locked &&
        cleanup_pace_.may_clean_up(std::chrono::steady_clock::now())) {
      // Nobody waits for it: the caller has its answer.
      const Arguments of_removal({lock}, {server_->names().index_root()});
      server_->link_of(key).tell(of_removal.by_text(redis::scripts().remove_dead));
    }
    co_return locked;
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    const Arguments arguments({server_->names().lock(key)}, {});
    co_return record_of(co_await server_->run(server_->link_of(key), redis::scripts().lookup_key, arguments, limits));
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    const Arguments arguments({server_->names().index(id)}, {id.view()});
    co_return record_of(co_await server_->run(server_->link_of(id), redis::scripts().lookup_id, arguments, limits));
  }

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const Key& key, const LockId& waiter, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    if (!server_->names().have_queues()) co_return nullptr;
    auto ticket = std::make_unique<RedisTicket>(server_, key, waiter, std::move(wake));
    try {
      co_await ticket->rejoin(limits);
    } catch (const LockError&) {
      // It may have got its place all the same, and nobody would give that up.
      ticket->leave_untold();
      throw;
    }
    co_return ticket;
  }

  asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& limits) override {
    // Names that nobody uses.
    const auto id = LockId::generate();
    const Key key(id.str());
    const auto& names = server_->names();
    const Arguments probing({names.index(id), names.queue(key), names.turn(key)}, {names.wake_channel(id)});
    redis::Examiner examiner;
    examiner.ask = [&](std::string request) -> asio::awaitable<Reply> {
      auto answer = co_await server_->link_of(id).call(std::move(request), limits);
      co_return std::move(answer.reply);
    };
    examiner.probe = [&] { return server_->run(server_->link_of(id), redis::scripts().probe, probing, limits); };
    examiner.subscribe = [&]() -> asio::awaitable<void> {
      const auto lock = names.lock(key);
      const std::function<void()> nothing = [] {};
      auto& subscriber = server_->subscriber();
      subscriber.follow(server_->link_of(id).address());
      // Also if it fails: it would be subscribed with every new connection.
      const struct Unsubscribe {
        redis::Subscriber& subscriber;
        const LockId& id;
        ~Unsubscribe() { subscriber.remove(id); }
      } unsubscribe{subscriber, id};
      co_await subscriber.add(id, lock, nothing, limits);
    };
    co_return co_await redis::diagnose(std::move(examiner));
  }

  asio::awaitable<void> close(const CallLimits& /*limits*/) override {
    server_->close();
    co_return;
  }

 private:
  static std::string milliseconds_of(milliseconds duration) { return std::to_string(duration.count()); }

  static Fence fence_at(const Reply& reply, std::size_t position) {
    const auto value = integer_at(reply, position);
    if (value <= 0 || static_cast<std::uint64_t>(value) > Fence::max_value) refuse_reply();
    return Fence(static_cast<std::uint64_t>(value));
  }

  const std::shared_ptr<Server> server_;
  core::CleanupPace cleanup_pace_;
};

void validate(const RedisOptions& options) {
  const auto refuse = [](const char* message) { throw LockError(ErrorCode::invalid_argument, message); };
  if (options.unix_socket.empty() && (options.host.empty() || options.port == 0))
    refuse("Redis needs a host and a port");
  if (options.database < 0) refuse("a Redis database has a number from 0 on");
  if (options.connect_timeout <= milliseconds(0)) refuse("connect_timeout must be positive");
  if (options.operation_timeout <= milliseconds(0)) refuse("operation_timeout must be positive");
  // What the system accepts.
  constexpr std::chrono::seconds longest_keep_alive{32767};
  if (options.keep_alive < std::chrono::seconds(1) || options.keep_alive > longest_keep_alive) {
    refuse("keep_alive must be from one to 32767 seconds");
  }
  const auto is_graphic = [](char c) { return c > ' ' && c <= '~'; };
  if (!std::ranges::all_of(options.client_name, is_graphic))
    refuse("client_name must not have spaces or special characters");
  if (options.connections == 0) refuse("connections must be positive");
  if (options.queue == 0) refuse("queue must be positive");
}

}  // namespace

std::unique_ptr<Backend> make_redis_backend(RedisOptions options, Log log) {
  validate(options);
  options.connect_timeout = core::bounded(options.connect_timeout);
  options.operation_timeout = core::bounded(options.operation_timeout);
  return std::make_unique<RedisBackend>(std::move(options), log);
}

}  // namespace syncguard
