#include "backends/postgres/wake_listener.hpp"

#include "async/scoped_timeout.hpp"
#include "async/spawn.hpp"
#include "core/reservation.hpp"

#include <asio/post.hpp>
#include <asio/strand.hpp>
#include <asio/this_coro.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace syncguard::postgres {
namespace {

// How often a connection with waiters is checked: a lost one may otherwise look like one without notifications.
constexpr std::chrono::seconds check_interval{10};
constexpr std::chrono::milliseconds min_backoff{250};
constexpr std::chrono::seconds max_backoff{10};
// A connection that lasted this long ends the backoff.
constexpr std::chrono::seconds stable_after{5};

// Removes the first word of a text, and returns it.
std::string_view take_word(std::string_view& text) {
  const auto word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(word.size() + 1, text.size()));
  return word;
}

}  // namespace

std::optional<Security> WakeListener::security() {
  const std::lock_guard lock(mutex_);
  return security_;
}

asio::awaitable<void> WakeListener::listen(CallLimits limits) {
  const auto executor = co_await asio::this_coro::executor;
  std::optional<async::Event> attempt_ended;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::listening) co_return;
    if (state_ == State::closed) throw LockError(ErrorCode::aborted, "the client is closed");
    if (state_ == State::idle && failure_ && std::chrono::steady_clock::now() < retry_at_) throw LockError(*failure_);
    if (state_ == State::idle) {
      state_ = State::connecting;
      attempt_ended_ = {};
      if (!strand_) strand_ = asio::make_strand(executor);
      async::spawn_on(strand_, keep_listening(), shared_from_this());
    }
    attempt_ended = attempt_ended_;
  }
  co_await attempt_ended->wait(limits, "timed out starting to listen for PostgreSQL notifications");
  const std::lock_guard lock(mutex_);
  if (state_ != State::listening) {
    throw failure_ ? LockError(*failure_) : LockError(ErrorCode::aborted, "the client is closed");
  }
}

asio::awaitable<void> WakeListener::keep_listening() {
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
    // Waiters look in the meantime. If there are none, the next one reconnects.
    if (looks_->waiters().empty()) co_return;
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
  const std::string check_sql = "SELECT";
  co_await run(*connection, listen_sql);
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::closed) co_return;
    state_ = State::listening;
    attempt_ended_.set();
  }
  // Waiters may have missed notifications before this connection was opened.
  if (std::exchange(has_listened_, true)) looks_->waiters().look_now();
  using Clock = std::chrono::steady_clock;
  auto next_check = Clock::now() + check_interval;
  for (;;) {
    const auto payloads = co_await connection->notifications(next_check);
    {
      const std::lock_guard lock(mutex_);
      if (state_ == State::closed) co_return;
    }
    for (const auto& payload : payloads) on_notification(payload);
    if (Clock::now() < next_check) continue;
    if (!looks_->waiters().empty()) co_await run(*connection, check_sql);
    next_check = Clock::now() + check_interval;
  }
}

// The payload is described in sql/functions.sql. Any role can send another one.
void WakeListener::on_notification(std::string_view payload) {
  const auto token = take_word(payload);
  const auto topic = take_word(payload);
  std::int64_t reservation = 0;
  (void)std::from_chars(payload.data(), payload.data() + payload.size(), reservation);
  auto& waiters = looks_->waiters();
  waiters.wake_named(token);
  waiters.look_at_topic(
      topic, std::clamp(std::chrono::milliseconds(reservation), std::chrono::milliseconds(0), core::max_reservation));
}

asio::awaitable<void> WakeListener::run(Connection& connection, const std::string& sql) {
  // A connection that does not reply in time is closed.
  const async::ScopedTimeout scoped_timeout(strand_, std::chrono::steady_clock::now() + connect_options_.timeout,
                                            [&] { connection.close(); });
  // Named before they are awaited: g++ 12 would destroy them twice.
  const std::vector<Statement> statements = {{.sql = &sql}};
  (void)co_await connection.run(statements);
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
