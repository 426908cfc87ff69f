#include "backends/postgres/listener.hpp"

#include "async/patience.hpp"
#include "async/spawn.hpp"

#include <asio/post.hpp>
#include <asio/strand.hpp>
#include <asio/this_coro.hpp>

#include <exception>
#include <utility>

namespace syncguard::postgres {
namespace {

constexpr std::chrono::seconds show_every{10};

}  // namespace

Listener::Listener(std::string connection, std::chrono::milliseconds connect_timeout, std::string seen)
    : connection_(std::move(connection)), connect_timeout_(connect_timeout), seen_(std::move(seen)) {}

asio::awaitable<void> Listener::add(LockId waiter, std::function<void()> wake, CallLimits limits) {
  const auto executor = co_await asio::this_coro::executor;
  const auto wake_up = std::make_shared<async::WakeUp>();
  waiters_.add(waiter, std::move(wake));
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::listening) co_return;
    if (state_ == State::closed) throw LockError(ErrorCode::aborted, "the client is closed");
    waiting_for_connection_.push_back(wake_up);
    if (state_ == State::idle) {
      state_ = State::connecting;
      if (!strand_) strand_ = asio::make_strand(executor);
      async::spawn_on(strand_, listen(), shared_from_this());
    }
  }
  const auto reason = co_await wake_up->wait(limits.deadline, limits.stop);
  const std::lock_guard lock(mutex_);
  std::erase(waiting_for_connection_, wake_up);
  async::expect_woken(reason, "PostgreSQL could not be listened to in time");
  if (state_ != State::listening) {
    throw failure_ ? LockError(*failure_) : LockError(ErrorCode::aborted, "the client is closed");
  }
}

// Under the mutex.
void Listener::wake_those_who_connect() {
  for (const auto& waiting : std::exchange(waiting_for_connection_, {})) waiting->wake();
}

asio::awaitable<void> Listener::listen() {
  std::optional<LockError> failure;
  try {
    co_await listen_until_lost();
  } catch (const LockError& error) {
    failure = error;
  } catch (const std::exception&) {
    failure = LockError(ErrorCode::internal, "listening to PostgreSQL failed unexpectedly");
  }
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::closed) state_ = State::idle;
    failure_ = failure;
    wake_those_who_connect();
  }
  // Nobody knows what they missed: all try, and join again.
  waiters_.wake_everybody();
}

asio::awaitable<void> Listener::listen_until_lost() {
  const CallLimits limits{stop_.get_token(), std::chrono::steady_clock::time_point::max()};
  const auto connection = co_await Connection::open(connection_, connect_timeout_, false, strand_, limits);
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::closed) co_return;
    listening_ = connection.get();
  }
  const struct Forget {
    Listener& listener;
    ~Forget() {
      const std::lock_guard lock(listener.mutex_);
      listener.listening_ = nullptr;
    }
  } forget{*this};
  const std::string listen_sql = "LISTEN syncguard_wake";
  // Named before they are awaited: g++ 12 would destroy them twice.
  const std::vector<Statement> listen_statements = {{.name = "listen", .sql = &listen_sql}};
  // One that does not answer in time is of no use.
  const auto close_connection = [&] { connection->close(); };
  {
    const async::Patience patience(strand_, std::chrono::steady_clock::now() + connect_timeout_, close_connection);
    (void)co_await connection->run(listen_statements);
  }
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::closed) co_return;
    state_ = State::listening;
    wake_those_who_connect();
  }
  auto next_show = std::chrono::steady_clock::now() + show_every;
  for (;;) {
    const auto payloads = co_await connection->notifications(next_show);
    for (const auto& payload : payloads) {
      if (LockId::is_valid(payload)) waiters_.wake(LockId(payload));
    }
    {
      const std::lock_guard lock(mutex_);
      if (state_ == State::closed) co_return;
    }
    if (std::chrono::steady_clock::now() < next_show) continue;
    next_show = std::chrono::steady_clock::now() + show_every;
    const auto waiters = everybody();
    if (waiters == "{}") continue;
    const std::vector<Statement> seen_statements = {{.name = "seen", .sql = &seen_, .values = {waiters}}};
    const async::Patience patience(strand_, std::chrono::steady_clock::now() + connect_timeout_, close_connection);
    try {
      (void)co_await connection->run(seen_statements);
    } catch (const LockError&) {
      // Of no use this time; but what it listens on may still be good.
      if (!connection->is_open()) throw;
    }
  }
}

// As PostgreSQL writes an array.
std::string Listener::everybody() const {
  std::string ids;
  for (const auto& id : waiters_.everybody()) ids += (ids.empty() ? "" : ",") + id.str();
  return "{" + ids + "}";
}

void Listener::close() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(state_, State::closed) == State::closed) return;
    wake_those_who_connect();
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
