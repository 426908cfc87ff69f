#include "backends/postgres/pool.hpp"

#include "async/spawn.hpp"

#include <asio/strand.hpp>
#include <asio/this_coro.hpp>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace syncguard::postgres {
namespace {

using std::chrono::steady_clock;

// How long not to open another connection after the server rejected one, while other connections work.
constexpr std::chrono::seconds pause_after_refusal{1};

}  // namespace

Pool::Pool(const PostgresOptions& options)
    : connect_options_{.connection = options.connection,
                       .timeout = options.connect_timeout,
                       .password = options.password_callback},
      max_lifetime_(options.max_connection_lifetime),
      max_idle_(options.max_idle_time),
      max_size_(options.pool) {}

asio::awaitable<Pool::Pooled> Pool::take(CallLimits limits) {
  const auto executor = co_await asio::this_coro::executor;
  // Whether this caller has already waited, and got a connection that the server had closed. It is then the next one.
  bool has_waited = false;
  for (;;) {
    std::optional<Pooled> pooled;
    // If no connection is idle.
    std::optional<async::Promise<Pooled>> promise;
    bool opens = false;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) throw LockError(ErrorCode::aborted, "the client is closed");
      if (!executor_) executor_ = executor;
      if (idle_.empty()) {
        waiting_.insert(has_waited ? waiting_.begin() : waiting_.end(), promise.emplace());
        opens = reserve_slot();
      } else {
        pooled = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (opens) open_one_more();
    if (promise) pooled = co_await wait_for(*promise, limits);
    has_waited = promise.has_value();
    pooled->connection->close_if_stale();
    if (is_usable(*pooled)) co_return std::move(*pooled);
    // The server has closed this connection, and perhaps the other ones, too.
    give_back(std::move(*pooled));
  }
}

asio::awaitable<Pool::Pooled> Pool::wait_for(async::Promise<Pooled> promise, const CallLimits& limits) {
  const auto result = co_await promise.ready().wait(limits.deadline, limits.stop);
  bool connecting = false;
  std::exception_ptr last_failure;
  {
    const std::lock_guard lock(mutex_);
    std::erase(waiting_, promise);
    connecting = opening_ > 0;
    last_failure = last_failure_;
  }
  // Removed from the queue, so no other thread sets the promise anymore.
  if (promise.is_ready()) {
    Pooled pooled = std::move(promise.value());
    if (result == async::WaitResult::set) co_return pooled;
    give_back(std::move(pooled));
  }
  if (connecting || result == async::WaitResult::stopped) {
    async::throw_ended(result, "timed out connecting to PostgreSQL");
  }
  if (last_failure) {
    throw LockError(ErrorCode::rate_limited, "all connections to PostgreSQL were in use, and it rejected another one",
                    Effect::none, {.cause = last_failure});
  }
  throw LockError(ErrorCode::rate_limited,
                  "all connections to PostgreSQL were in use; the option pool sets their number");
}

// The lifetime varies, so that connections that were opened together are not replaced together.
bool Pool::is_usable(const Pooled& pooled) const {
  if (!pooled.connection->is_idle()) return false;
  const auto spread = std::hash<const void*>{}(pooled.connection.get()) / 64 % 16;
  return steady_clock::now() - pooled.opened_at <= max_lifetime_ - max_lifetime_ / 8 * static_cast<int>(spread) / 16;
}

// Requires the mutex. The connections that have been idle the longest are at the front.
void Pool::take_out_idle(std::vector<Pooled>& taken, Idle which) {
  const auto since = steady_clock::now() - max_idle_;
  const auto is_kept = [&](const Pooled& pooled) { return which == Idle::too_long && pooled.idle_since > since; };
  const auto end = std::ranges::find_if(idle_, is_kept);
  open_ -= static_cast<std::size_t>(end - idle_.begin());
  taken.insert(taken.end(), std::make_move_iterator(idle_.begin()), std::make_move_iterator(end));
  idle_.erase(idle_.begin(), end);
}

// Requires the mutex. If a caller waits and the pool is below its limit, counts one more connection and returns true.
// The caller of this function must then open it.
bool Pool::reserve_slot() {
  if (closed_ || waiting_.empty() || open_ >= max_size_) return false;
  if (open_ > opening_ && steady_clock::now() < no_opening_before_) return false;
  ++open_;
  ++opening_;
  return true;
}

void Pool::open_one_more() { async::spawn(executor_, open()); }

asio::awaitable<void> Pool::open() {
  const auto self = shared_from_this();
  const asio::any_io_executor strand = asio::make_strand(executor_);
  Pooled pooled;
  std::exception_ptr error;
  try {
    const CallLimits limits{stop_.get_token(), std::chrono::steady_clock::time_point::max()};
    pooled.connection = co_await Connection::open(connect_options_, strand, limits);
  } catch (const LockError&) {
    error = std::current_exception();
  } catch (const std::exception&) {
    error = std::make_exception_ptr(LockError(ErrorCode::service_unavailable, "cannot connect to PostgreSQL",
                                              Effect::none, {.cause = std::current_exception()}));
  }
  pooled.opened_at = steady_clock::now();
  bool again = false;
  {
    const std::lock_guard lock(mutex_);
    --opening_;
    last_failure_ = error;
    if (error) {
      --open_;
      no_opening_before_ = steady_clock::now() + pause_after_refusal;
      // Only if no connection works. Otherwise callers wait for a working one.
      if (open_ == opening_ && !waiting_.empty()) {
        waiting_.front().set_error(error);
        waiting_.pop_front();
      }
      // The next caller gets its own connection attempt, and its own error.
      again = reserve_slot();
    }
  }
  if (!error) give_back(std::move(pooled));
  if (again) open_one_more();
}

void Pool::give_back(Pooled pooled) {
  const bool usable = is_usable(pooled);
  bool opens = false;
  bool starts_closing = false;
  std::vector<Pooled> unusable;
  {
    const std::lock_guard lock(mutex_);
    take_out_idle(unusable, pooled.connection->is_read_only() ? Idle::all : Idle::too_long);
    if (!usable || closed_) {
      unusable.push_back(std::move(pooled));
      --open_;
      opens = reserve_slot();
    } else if (waiting_.empty()) {
      pooled.idle_since = steady_clock::now();
      idle_.push_back(std::move(pooled));
      starts_closing = !std::exchange(closing_idle_ones_, true);
    } else {
      waiting_.front().set_value(std::move(pooled));
      waiting_.pop_front();
    }
  }
  // Closes these connections before another one is opened.
  unusable.clear();
  if (opens) open_one_more();
  if (starts_closing) async::spawn(executor_, close_idle_ones());
}

// Runs as long as there are idle connections.
asio::awaitable<void> Pool::close_idle_ones() {
  const auto self = shared_from_this();
  for (;;) {
    std::vector<Pooled> too_long_idle;
    steady_clock::time_point next;
    {
      const std::lock_guard lock(mutex_);
      take_out_idle(too_long_idle, Idle::too_long);
      closing_idle_ones_ = !idle_.empty();
      if (idle_.empty()) co_return;
      next = idle_.front().idle_since + max_idle_;
    }
    too_long_idle.clear();
    if (co_await async::sleep_until(next, stop_.get_token()) == async::WaitResult::stopped) co_return;
  }
}

std::size_t Pool::size() noexcept {
  const std::lock_guard lock(mutex_);
  return open_ - opening_;
}

void Pool::close() {
  std::vector<Pooled> idle;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    idle = std::exchange(idle_, {});
    open_ -= idle.size();
    for (const auto& promise : std::exchange(waiting_, {})) {
      promise.set_error(std::make_exception_ptr(LockError(ErrorCode::aborted, "the client is closed")));
    }
  }
  std::stop_source(stop_).request_stop();
}

}  // namespace syncguard::postgres
