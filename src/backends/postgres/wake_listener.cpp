#include "backends/postgres/wake_listener.hpp"

#include "async/scoped_timeout.hpp"
#include "async/spawn.hpp"
#include "core/reservation.hpp"

#include <asio/post.hpp>
#include <asio/strand.hpp>
#include <asio/this_coro.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace syncguard::postgres {
namespace {

constexpr std::chrono::seconds heartbeat_interval{10};
// How many waiters one transaction covers. Until it ends, the server holds back notifications to this connection, and
// joins and releases wait for the rows that a heartbeat has updated.
constexpr std::size_t max_heartbeats = 500;
constexpr std::size_t max_checks = 5000;
constexpr std::chrono::milliseconds min_backoff{250};
constexpr std::chrono::seconds max_backoff{10};
// After this time, a reservation that starts now has lapsed.
constexpr auto lapsed_after = core::max_reservation + std::chrono::milliseconds(20);
// A connection that lasted this long ends the backoff.
constexpr std::chrono::seconds stable_after{5};

// Removes waiters from the end of a list, which must not be empty. Returns them as an array in PostgreSQL's syntax.
std::string take(std::vector<LockId>& waiters, std::size_t max_count) {
  std::string taken;
  for (std::size_t count = 0; count < max_count && !waiters.empty(); ++count) {
    taken += (taken.empty() ? "{" : ",") + waiters.back().str();
    waiters.pop_back();
  }
  return taken + "}";
}

}  // namespace

void WakeListener::use(std::shared_ptr<const Statements> statements) {
  const std::lock_guard lock(mutex_);
  statements_ = std::move(statements);
}

std::optional<Security> WakeListener::security() {
  const std::lock_guard lock(mutex_);
  return security_;
}

asio::awaitable<void> WakeListener::add(LockId waiter, std::function<void()> wake, CallLimits limits) {
  const auto executor = co_await asio::this_coro::executor;
  std::optional<async::Event> attempt_ended;
  waiters_.add(waiter, std::move(wake));
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::listening) co_return;
    if (state_ == State::closed) throw LockError(ErrorCode::aborted, "the client is closed");
    if (state_ == State::idle && failure_ && std::chrono::steady_clock::now() < retry_at_) throw LockError(*failure_);
    if (state_ == State::idle) {
      state_ = State::connecting;
      attempt_ended_ = {};
      if (!strand_) strand_ = asio::make_strand(executor);
      async::spawn_on(strand_, listen(), shared_from_this());
    }
    attempt_ended = attempt_ended_;
  }
  co_await attempt_ended->wait(limits, "timed out starting to listen for PostgreSQL notifications");
  const std::lock_guard lock(mutex_);
  if (state_ != State::listening) {
    throw failure_ ? LockError(*failure_) : LockError(ErrorCode::aborted, "the client is closed");
  }
}

asio::awaitable<void> WakeListener::listen() {
  using Clock = std::chrono::steady_clock;
  for (;;) {
    std::optional<LockError> failure;
    const auto began_at = Clock::now();
    try {
      co_await listen_until_lost();
    } catch (const LockError& error) {
      failure = error;
    } catch (const std::exception&) {
      failure = LockError(ErrorCode::internal, "the listening connection to PostgreSQL failed unexpectedly");
    }
    Clock::time_point retry_at;
    {
      const std::lock_guard lock(mutex_);
      const bool was_listening = state_ == State::listening;
      failure_ = failure;
      attempt_ended_.set();
      if (state_ == State::closed) co_return;
      state_ = State::idle;
      // A lost connection is replaced immediately, unless it was lost soon after opening, and not for the first time.
      const auto next = std::clamp<Clock::duration>(2 * backoff_, min_backoff, max_backoff);
      if (!was_listening) backoff_ = next;
      const bool was_stable = was_listening && Clock::now() - began_at >= stable_after;
      retry_at_ = Clock::now() + (was_stable ? Clock::duration{} : backoff_);
      if (was_listening) backoff_ = was_stable ? Clock::duration{} : next;
      retry_at = retry_at_;
    }
    // Waiters poll in the meantime. If there are none, the next one reconnects.
    if (waiters_.all().empty()) co_return;
    (void)co_await async::sleep_until(retry_at, stop_.get_token());
    const std::lock_guard lock(mutex_);
    if (state_ != State::idle) co_return;
    state_ = State::connecting;
    attempt_ended_ = {};
  }
}

asio::awaitable<void> WakeListener::listen_until_lost() {
  const CallLimits limits{stop_.get_token(), std::chrono::steady_clock::time_point::max()};
  const auto connection = co_await Connection::open(connect_options_, strand_, limits);
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::closed) co_return;
    listening_ = connection.get();
    security_ = connection->security();
  }
  const struct Forget {
    WakeListener& wake_listener;
    ~Forget() {
      const std::lock_guard lock(wake_listener.mutex_);
      wake_listener.listening_ = nullptr;
    }
  } forget{*this};
  const std::string listen_sql = "LISTEN syncguard_wake";
  // Named before they are awaited: g++ 12 would destroy them twice.
  const std::vector<Statement> listen_statements = {{.sql = &listen_sql}};
  (void)co_await run(*connection, listen_statements);
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::closed) co_return;
    state_ = State::listening;
    attempt_ended_.set();
  }
  // Waiters may have missed notifications before this connection was opened, so all of them try again and rejoin.
  if (std::exchange(has_listened_, true)) waiters_.wake_all();
  using Clock = std::chrono::steady_clock;
  auto next_heartbeat = Clock::now();
  auto next_lapsed_check = Clock::time_point::max();
  Clock::time_point last_foreign_turn{};
  // The waiters that the current check has not reached yet.
  std::vector<LockId> unchecked;
  bool is_heartbeat = false;
  for (;;) {
    const auto next_check = unchecked.empty() ? std::min(next_heartbeat, next_lapsed_check) : Clock::now();
    const auto payloads = co_await connection->notifications(next_check);
    for (const auto& payload : payloads) {
      if (!LockId::is_valid(payload)) continue;
      const LockId notified(payload);
      if (waiters_.contains(notified)) {
        waiters_.wake(notified);
      } else {
        // A waiter of another client was notified. It may be dead, and may be ahead of a waiter of this client.
        last_foreign_turn = Clock::now();
        next_lapsed_check = std::min(next_lapsed_check, last_foreign_turn + lapsed_after);
      }
    }
    std::shared_ptr<const Statements> sql;
    {
      const std::lock_guard lock(mutex_);
      if (state_ == State::closed) co_return;
      sql = statements_;
    }
    if (const auto now = Clock::now(); unchecked.empty()) {
      if (now < next_heartbeat && now < next_lapsed_check) continue;
      is_heartbeat = now >= next_heartbeat;
      if (is_heartbeat) next_heartbeat = now + heartbeat_interval;
      // The turn that was given last may not have lapsed yet.
      const auto last_turn_lapses = last_foreign_turn + lapsed_after;
      next_lapsed_check = last_turn_lapses > now ? last_turn_lapses : Clock::time_point::max();
      if (sql) unchecked = waiters_.all();
      if (unchecked.empty()) continue;
    }
    const auto batch = take(unchecked, is_heartbeat ? max_heartbeats : max_checks);
    // The heartbeat comes last, so that its rows are locked for a short time.
    std::vector<Statement> statements = {{.sql = &sql->lapsed, .values = {batch}}};
    if (is_heartbeat) statements.push_back({.sql = &sql->seen, .values = {batch}});
    const auto lapsed = co_await run_transaction(*connection, *sql, std::move(statements));
    for (int row = 0; lapsed && row < lapsed->count(); ++row) {
      if (const auto id = lapsed->text(row, 0); LockId::is_valid(id)) waiters_.wake(LockId(id));
      // Another client may be marking this waiter right now, and the mark may outlast the waiter's next join. The next
      // check finds it.
      next_lapsed_check = std::min(next_lapsed_check, Clock::now() + lapsed_after);
    }
    if (is_heartbeat && unchecked.empty()) {
      std::vector<Statement> purge = {{.sql = &sql->purge}};
      (void)co_await run_transaction(*connection, *sql, std::move(purge));
    }
  }
}

asio::awaitable<std::optional<Rows>> WakeListener::run_transaction(Connection& connection, const Statements& sql,
                                                                   std::vector<Statement> statements) {
  // PostgreSQL's timeouts are ints.
  const auto timeout = std::to_string(std::min<std::int64_t>(connect_options_.timeout.count(), 1'000'000'000));
  const std::vector<Statement> start = {{.sql = &sql.begin}, {.sql = &sql.settings, .values = {timeout, timeout}}};
  statements.insert(statements.begin(), start.begin(), start.end());
  statements.push_back({.sql = &sql.commit});
  try {
    co_return co_await run(connection, std::move(statements));
  } catch (const LockError&) {
    // The connection may still receive notifications.
    if (!connection.is_open()) throw;
    co_return std::nullopt;
  }
}

asio::awaitable<Rows> WakeListener::run(Connection& connection, std::vector<Statement> statements) {
  // A connection that does not reply in time is closed.
  const async::ScopedTimeout scoped_timeout(strand_, std::chrono::steady_clock::now() + connect_options_.timeout,
                                            [&] { connection.close(); });
  co_return co_await connection.run(statements);
}

bool WakeListener::is_connected() noexcept {
  const std::lock_guard lock(mutex_);
  return listening_ != nullptr;
}

void WakeListener::close() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(state_, State::closed) == State::closed) return;
    attempt_ended_.set();
    if (strand_) {
      asio::post(strand_, [self = shared_from_this()] {
        const std::lock_guard strand_lock(self->mutex_);
        if (self->listening_ != nullptr) self->listening_->close();
      });
    }
  }
  std::stop_source(stop_).request_stop();
}

}  // namespace syncguard::postgres
