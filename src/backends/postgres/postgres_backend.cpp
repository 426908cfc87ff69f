#include "async/run_on_thread.hpp"
#include "async/spawn.hpp"
#include "backends/postgres/diagnosis.hpp"
#include "backends/postgres/errors.hpp"
#include "backends/postgres/session.hpp"
#include "backends/postgres/setup.hpp"
#include "backends/verdict.hpp"
#include "core/durations.hpp"
#include "core/encodings.hpp"
#include "core/expiry.hpp"
#include "core/fence_limit.hpp"
#include "core/listed.hpp"
#include "core/reservation.hpp"
#include "core/validation.hpp"

#include <syncguard/postgres.hpp>
#include <syncguard/storage_key.hpp>

#include <asio/this_coro.hpp>

#include <libpq-fe.h>

#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace {

using backends::Verdict;
using backends::Waiters;
using postgres::Rows;
using postgres::Session;
using postgres::Values;
using std::chrono::milliseconds;
namespace operations = postgres::operations;

std::string lock_key_of(const Key& key) { return lock_storage_key("", key, postgres_storage_limit); }

Timestamp time_at(const Rows& rows, int column) { return Timestamp(milliseconds(rows.number(0, column))); }
milliseconds duration_at(const Rows& rows, int column) { return milliseconds(rows.number(0, column)); }
std::string text_of(milliseconds duration) { return std::to_string(duration.count()); }

// The name of a waiter in the queue and in notifications. Every role that may connect can listen to those, so it must
// not be the lock id, which would allow releasing the lock. See docs/adr/0028-wake-up-tokens.md.
std::string wake_token(const LockId& id) { return storage_hash(id.view()); }

// What notifications call a key: {topic} in sql/functions.sql.
std::string wake_topic(const std::string& stored_key) {
  constexpr std::size_t length = 16;
  return core::hexadecimal(core::sha256(stored_key)).substr(0, length);
}

// Throws the error for a row that was probably written by another program.
[[noreturn]] void refuse_foreign() {
  throw LockError(ErrorCode::internal,
                  "the row stored for this key is not a lock: another program uses the same table");
}

Fence fence_of(const std::string& text) {
  try {
    return Fence::parse(text);
  } catch (const LockError&) {
    refuse_foreign();
  }
}

std::optional<LockRecord> record_of(const Rows& rows) {
  if (rows.count() == 0) return std::nullopt;
  try {
    return LockRecord{.key = rows.text(0, 0),
                      .lock_id = LockId(rows.text(0, 1)),
                      .expires_at = time_at(rows, 2),
                      .acquired_at = time_at(rows, 3),
                      .fence = Fence::parse(rows.text(0, 4)),
                      .holder = core::stored_holder(rows.text(0, 5))};
  } catch (const LockError&) {
    refuse_foreign();
  }
}

// The columns of a lock in a row.
struct ListedColumns {
  int key;
  int expires_at;
  int acquired_at;
  int fence;
  int holder;
  int waiters;
};

// nullopt if the row cannot be a lock.
std::optional<ListedLock> listed_of(const Rows& rows, int row, const ListedColumns& columns) {
  const auto time = [&](int column) { return Timestamp(milliseconds(rows.number(row, column))); };
  try {
    ListedLock lock{.key = rows.text(row, columns.key),
                    .expires_at = time(columns.expires_at),
                    .acquired_at = time(columns.acquired_at),
                    .fence = Fence::parse(rows.text(row, columns.fence)),
                    .holder = core::stored_holder(rows.text(row, columns.holder))};
    if (!rows.text(row, columns.waiters).empty()) {
      lock.waiters = static_cast<std::size_t>(rows.number(row, columns.waiters));
    }
    return lock;
  } catch (const LockError&) {
    return std::nullopt;
  }
}

// A negative one is not a fence either.
Fence counter_of(std::int64_t value) { return core::fence_of_counter(static_cast<std::uint64_t>(value)); }

Verdict verdict_of(const Rows& rows, int row = 0) { return static_cast<Verdict>(rows.number(row, 0)); }

Missing missing(Verdict verdict) { return verdict == Verdict::expired ? Missing::expired : Missing::not_found; }

// What the functions join and look return for a waiter.
core::WaiterReply waiter_reply(const Rows& rows, int row) {
  enum Column : int { verdict, free_in, place, is_first };
  core::WaiterReply reply;
  if (!rows.text(row, free_in).empty()) reply.free_in = milliseconds(rows.number(row, free_in));
  if (!rows.text(row, place).empty()) reply.place = rows.number(row, place);
  reply.is_first = rows.text(row, is_first) == "t";
  return reply;
}

enum class Step { join, look };
Values join_values(const std::string& key, const LockId& waiter, milliseconds reservation,
                   std::optional<std::int64_t> place, Step step) {
  return {key,
          waiter.str(),
          wake_token(waiter),
          text_of(reservation),
          std::to_string(place.value_or(0)),
          step == Step::look ? "true" : "false"};
}

// One waiter looks, and its entry or a turn changes. Waits for the key's advisory lock.
asio::awaitable<void> look_with_changes(std::shared_ptr<Session> session, Waiters::Look look, CallLimits limits) {
  auto& waiters = session->waiters();
  if (!waiters.contains(look.id)) co_return;
  const auto key = lock_key_of(look.key);
  try {
    Values values = join_values(key, look.id, look.reservation, look.place, Step::look);
    const Rows rows = co_await session->run(operations::join, std::move(values), limits, &look.id);
    waiters.looked(look.id, waiter_reply(rows, 0));
  } catch (const std::exception& error) {
    session->log().debug(std::string("looking at an awaited key failed: ") + error.what());
    waiters.look_later(look.id);
  }
  // If it left in the meantime, the look may have overtaken that, and has put it back.
  if (!waiters.contains(look.id)) {
    const auto executor = co_await asio::this_coro::executor;
    Values values = {key, wake_token(look.id)};
    session->run_in_background(executor, operations::leave, std::move(values), look.id);
  }
}

asio::awaitable<void> look(std::shared_ptr<Session> session, std::vector<Waiters::Look> due) {
  if (!session) co_return;
  try {
    Values keys;
    Values ids;
    Values tokens;
    for (const auto& [id, key, reservation, place] : due) {
      keys.push_back(lock_key_of(key));
      ids.push_back(id.str());
      tokens.push_back(wake_token(id));
    }
    Values values = {postgres::array_of(keys), postgres::array_of(ids), postgres::array_of(tokens)};
    const CallLimits limits{{}, std::chrono::steady_clock::now() + session->options().operation_timeout};
    const Rows rows = co_await session->run(operations::look, std::move(values), limits);
    if (static_cast<std::size_t>(rows.count()) != due.size()) {
      throw LockError(ErrorCode::internal, "unexpected reply from the PostgreSQL function 'look'");
    }
    const auto executor = co_await asio::this_coro::executor;
    for (int row = 0; row < rows.count(); ++row) {
      const auto& one = due[static_cast<std::size_t>(row)];
      if (verdict_of(rows, row) == Verdict::yes) {
        session->waiters().looked(one.id, waiter_reply(rows, row));
      } else {
        // On its own: the key's advisory lock may be taken, and the other waiters must not wait for it.
        async::spawn(executor, look_with_changes(session, one, limits));
      }
    }
  } catch (const LockError& error) {
    // Not reported: the waiters' own attempts meet the same error and report it.
    session->log().debug(std::string("looking at awaited keys failed: ") + error.what());
    for (const auto& one : due) session->waiters().look_later(one.id);
  }
}

class PostgresTicket : public WaitTicket {
 public:
  PostgresTicket(std::shared_ptr<Session> session, std::shared_ptr<postgres::WakeListener> wake_listener,
                 const Key& key, const LockId& waiter, std::function<void()> wake)
      : session_(std::move(session)),
        wake_listener_(std::move(wake_listener)),
        key_(lock_key_of(key)),
        waiter_(waiter) {
    session_->waiters().add(
        waiter_, {.key = key, .wake = std::move(wake), .name = wake_token(waiter), .topic = wake_topic(key_)});
  }
  ~PostgresTicket() override { session_->waiters().remove(waiter_); }

  asio::awaitable<void> rejoin(const CallLimits& limits) override {
    co_await listen(limits);
    co_await enter(limits);
  }

  asio::awaitable<void> listen(const CallLimits& limits) { co_await wake_listener_->listen(limits); }

  asio::awaitable<void> enter(const CallLimits& limits) {
    const auto reservation = session_->reservation();
    Values values = join_values(key_, waiter_, reservation, session_->waiters().place(waiter_), Step::join);
    const Rows rows = co_await session_->run(operations::join, std::move(values), limits, &waiter_);
    const auto reply = waiter_reply(rows, 0);
    free_in_ = reply.free_in;
    session_->waiters().joined(waiter_, reply, reservation);
    const auto executor = co_await asio::this_coro::executor;
    session_->looks().start(executor, [weak = std::weak_ptr(session_)](std::vector<Waiters::Look> due) {
      return look(weak.lock(), std::move(due));
    });
  }

  [[nodiscard]] std::optional<milliseconds> free_in() const noexcept override { return free_in_; }
  [[nodiscard]] bool notices_expiry() const noexcept override { return true; }

  asio::awaitable<void> leave(const CallLimits& limits) override {
    session_->waiters().remove(waiter_);
    Values values = {key_, wake_token(waiter_)};
    co_await session_->run(operations::leave, std::move(values), limits, &waiter_);
  }

 private:
  const std::shared_ptr<Session> session_;
  const std::shared_ptr<postgres::WakeListener> wake_listener_;
  const std::string key_;
  const LockId waiter_;
  std::optional<milliseconds> free_in_;
};

class PostgresBackend : public Backend {
 public:
  PostgresBackend(PostgresOptions options, Log log)
      : session_(std::make_shared<Session>(std::move(options), std::move(log))) {}
  ~PostgresBackend() override { session_->close(); }

  [[nodiscard]] Capabilities capabilities() const override {
    return {.name = "postgres",
            .fences = session_->options().fences,
            .operation_timeout = session_->options().operation_timeout};
  }
  [[nodiscard]] std::size_t connections() const noexcept override { return session_->connections(); }

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    const auto key = lock_key_of(request.key);
    const auto fence_key = fence_storage_key("", key, postgres_storage_limit);
    Values values = {key,
                     request.lock_id.str(),
                     text_of(request.ttl),
                     fence_key,
                     request.key.str(),
                     session_->options().fences == FenceSource::clock ? "true" : "false",
                     request.holder,
                     request.hints.id_is_new ? "" : wake_token(request.lock_id)};
    const Rows rows = co_await session_->run(operations::acquire, std::move(values), limits, &request.lock_id);
    if (rows.count() == 0) {
      // A client that does not take the advisory lock was faster, or the lock was not stored. The statement cannot see
      // the lock of such a client.
      const auto faster = co_await lookup(request.key, limits);
      if (!faster || faster->lock_id == request.lock_id) throw postgres::change_discarded();
      // There is no need to retry immediately.
      co_return Contended{core::reservation_time};
    }
    const auto verdict = verdict_of(rows);
    if (verdict == Verdict::yes) co_return Granted{fence_of(rows.text(0, 1)), time_at(rows, 2), duration_at(rows, 3)};
    if (verdict == Verdict::counter_at_end) throw core::counter_at_end();
    co_return Contended{duration_at(rows, 3)};
  }

  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    try {
      Values values = {id.str()};
      co_return released(co_await session_->run(operations::release, std::move(values), limits, &id));
    } catch (const LockError& error) {
      if (error.code() != ErrorCode::rate_limited || error.in_doubt()) throw;
    }
    // A full NOTIFY queue, or no space for the queue's table, may have rolled back the release.
    Values values = {id.str()};
    co_return released(co_await session_->run(operations::release_quietly, std::move(values), limits, &id));
  }

  asio::awaitable<ExtendReply> extend(const LockId& id, milliseconds ttl, const CallLimits& limits) override {
    Values values = {id.str(), text_of(ttl)};
    const Rows rows = co_await session_->run(operations::extend, std::move(values), limits, &id);
    const auto verdict = verdict_of(rows);
    if (verdict == Verdict::yes) co_return Extended{time_at(rows, 1), duration_at(rows, 2)};
    co_return missing(verdict);
  }

  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override {
    const auto record = co_await lookup(key, limits);
    if (!record && session_->options().cleanup_in_is_locked &&
        cleanup_pace_.may_clean_up(std::chrono::steady_clock::now())) {
      const auto executor = co_await asio::this_coro::executor;
      session_->run_in_background(executor, operations::remove_dead, {lock_key_of(key)}, std::nullopt);
    }
    co_return record.has_value();
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override {
    Values values = {lock_key_of(key)};
    co_return record_of(co_await session_->run(operations::lookup_key, std::move(values), limits));
  }

  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override {
    Values values = {id.str()};
    auto record = record_of(co_await session_->run(operations::lookup_id, std::move(values), limits));
    // The column's collation may treat different ids as equal.
    if (record && record->lock_id != id) record.reset();
    co_return record;
  }

  asio::awaitable<std::unique_ptr<WaitTicket>> join(const AcquireRequest& request, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    const auto& key = request.key;
    const auto& waiter = request.lock_id;
    const auto executor = co_await asio::this_coro::executor;
    auto wake_listener = co_await session_->wake_listener(limits);
    if (!wake_listener) co_return nullptr;
    auto ticket = std::make_unique<PostgresTicket>(session_, std::move(wake_listener), key, waiter, std::move(wake));
    co_await ticket->listen(limits);
    try {
      co_await ticket->enter(limits);
    } catch (const LockError&) {
      // It may still have joined the queue, and nothing else would remove its entry.
      session_->run_in_background(executor, operations::leave, {lock_key_of(key), wake_token(waiter)}, waiter);
      throw;
    }
    co_return ticket;
  }

  asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& limits) override {
    co_return co_await postgres::diagnose(*session_, limits);
  }

  asio::awaitable<std::string> setup(const CallLimits& limits) override {
    std::function<std::string()> set_up = [options = session_->options()] { return postgres::set_up(options); };
    auto message = co_await async::run_on_thread("syncguard-pg", std::move(set_up), limits,
                                                 "timed out creating the tables", Effect::in_doubt);
    session_->forget_tables();
    co_return message;
  }

  [[nodiscard]] std::string setup_script() const override { return postgres_schema(session_->options()); }

  asio::awaitable<CleanupReply> clean_up(const CleanupRequest& request, const CallLimits& limits) override {
    const auto age = core::removable_before(Timestamp(), request.older_than).time_since_epoch();
    const bool counts = request.mode == CleanupRequest::Mode::count;
    Values values = {text_of(-age)};
    if (!counts) values.push_back(std::to_string(request.limit));
    const auto& operation = counts ? operations::count_expired : operations::remove_expired;
    const Rows rows = co_await session_->run(operation, std::move(values), limits);
    if (counts) co_return CleanupReply{.count = static_cast<std::size_t>(rows.number(0, 0))};
    const auto count = static_cast<std::size_t>(rows.count());
    co_return CleanupReply{.count = count, .more = count == request.limit};
  }

  asio::awaitable<LockPage> list(const ListRequest& request, const CallLimits& limits) override {
    Values values = {request.cursor, request.prefix, std::to_string(request.limit)};
    const Rows rows = co_await session_->run(operations::list, std::move(values), limits);
    enum Column : int { place, key, number, time, user_key, fence, holder, waiters };
    constexpr std::int64_t max_examined = 2000;
    LockPage page;
    page.now = time_at(rows, time);
    for (int row = 1; row < rows.count(); ++row) {
      auto lock = listed_of(rows, row,
                            {.key = user_key,
                             .expires_at = number,
                             .acquired_at = time,
                             .fence = fence,
                             .holder = holder,
                             .waiters = waiters});
      if (lock) page.locks.push_back(std::move(*lock));
    }
    const auto found = static_cast<std::size_t>(rows.count()) - 1;
    if (found == request.limit) {
      page.cursor = rows.text(rows.count() - 1, key);
    } else if (rows.number(0, number) == max_examined) {
      page.cursor = rows.text(0, key);
    }
    co_return page;
  }

  asio::awaitable<KeyState> inspect(const Key& key, const CallLimits& limits) override {
    const auto stored = lock_key_of(key);
    Values values = {stored, fence_storage_key("", stored, postgres_storage_limit)};
    const Rows rows = co_await session_->run(operations::inspect, std::move(values), limits);
    enum Column : int { now, counter, user_key, expires_at, acquired_at, fence, holder, waiters };
    KeyState state;
    state.now = time_at(rows, now);
    if (!rows.text(0, counter).empty()) state.fence = counter_of(rows.number(0, counter));
    if (!rows.text(0, user_key).empty()) {
      auto lock = listed_of(rows, 0,
                            {.key = user_key,
                             .expires_at = expires_at,
                             .acquired_at = acquired_at,
                             .fence = fence,
                             .holder = holder,
                             .waiters = waiters});
      if (!lock) refuse_foreign();
      core::set_holder(state, std::move(*lock));
    }
    co_return state;
  }

  asio::awaitable<bool> break_lock(const Key& key, Fence fence, const CallLimits& limits) override {
    Values values = {lock_key_of(key), fence.str()};
    const Rows rows = co_await session_->run(operations::break_lock, std::move(values), limits);
    co_return verdict_of(rows) == Verdict::yes;
  }

  asio::awaitable<Fence> raise_fence(const Key& key, Fence fence, const CallLimits& limits) override {
    const auto stored = lock_key_of(key);
    Values values = {stored, fence_storage_key("", stored, postgres_storage_limit), std::to_string(fence.value()),
                     key.str()};
    const Rows rows = co_await session_->run(operations::raise_fence, std::move(values), limits);
    if (rows.count() == 0 || rows.number(0, 0) < static_cast<std::int64_t>(fence.value())) {
      throw postgres::change_discarded();
    }
    co_return counter_of(rows.number(0, 0));
  }

  asio::awaitable<void> close(const CallLimits& /*limits*/) override {
    session_->close();
    co_return;
  }

 private:
  static ReleaseReply released(const Rows& rows) {
    const auto verdict = verdict_of(rows);
    if (verdict == Verdict::yes) return Released{};
    return missing(verdict);
  }

  const std::shared_ptr<Session> session_;
  core::CleanupPace cleanup_pace_;
};

void validate(const PostgresOptions& options) {
  using core::refuse;
  const auto libpq_accepts = [](const std::string& connection) {
    if (connection.find("://") == std::string::npos && connection.find('=') == std::string::npos)
      return connection.empty();
    char* message = nullptr;
    const std::unique_ptr<PQconninfoOption, void (*)(PQconninfoOption*)> parsed(
        PQconninfoParse(connection.c_str(), &message), PQconninfoFree);
    // libpq's message is not used, because it may repeat a password.
    PQfreemem(message);
    return parsed != nullptr;
  };
  if (!libpq_accepts(options.connection)) refuse("libpq rejects this URL or one of its options");
  if (options.listen_url != "off" && !libpq_accepts(options.listen_url)) refuse("libpq rejects listen_url");
  if (options.pool == 0) refuse("pool must be positive");
  if (options.max_connection_lifetime < std::chrono::seconds(1)) refuse("max_connection_lifetime must be at least 1s");
  if (options.max_idle_time <= milliseconds(0)) refuse("max_idle_time must be positive");
  if (options.connect_timeout <= milliseconds(0)) refuse("connect_timeout must be positive");
  if (options.operation_timeout <= milliseconds(0)) refuse("operation_timeout must be positive");
}

}  // namespace

std::unique_ptr<Backend> make_postgres_backend(PostgresOptions options, Log log) {
  validate(options);
  options.max_connection_lifetime = core::bounded(options.max_connection_lifetime);
  options.max_idle_time = core::bounded(options.max_idle_time);
  options.connect_timeout = core::bounded(options.connect_timeout);
  options.operation_timeout = core::bounded(options.operation_timeout);
  return std::make_unique<PostgresBackend>(std::move(options), std::move(log));
}

std::string postgres_connection(const std::map<std::string, std::string>& parameters) {
  std::string text;
  for (const auto& [name, value] : parameters) {
    text += name + "='";
    for (const char c : value) {
      if (c == '\\' || c == '\'') text += '\\';
      text += c;
    }
    text += "' ";
  }
  return text;
}

std::string postgres_schema(const PostgresOptions& options) {
  return postgres::script_of(postgres::Tables(options.table, options.fence_table));
}

void setup_postgres_schema(const PostgresOptions& options) {
  validate(options);
  (void)postgres::set_up(options);
}

}  // namespace v0_1
}  // namespace syncguard
