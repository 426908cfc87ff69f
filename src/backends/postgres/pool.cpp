#include "backends/postgres/pool.hpp"

#include "async/spawn.hpp"

#include <asio/strand.hpp>
#include <asio/this_coro.hpp>

#include <algorithm>
#include <utility>

namespace syncguard::postgres {

Pool::Pool(const PostgresOptions& options)
    : connection_(options.connection),
      connect_timeout_(options.connect_timeout),
      prepare_(options.prepare),
      most_(options.pool) {}

asio::awaitable<Pool::Pooled> Pool::take(CallLimits limits) {
  const auto executor = co_await asio::this_coro::executor;
  const auto waiter = std::make_shared<Waiter>();
  std::vector<Pooled> broken;
  bool opens = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) throw LockError(ErrorCode::aborted, "the client is closed");
    while (!idle_.empty()) {
      Pooled pooled = std::move(idle_.back());
      idle_.pop_back();
      if (pooled.connection->is_usable()) co_return pooled;
      // The server closed it meanwhile, and perhaps the others, too.
      --open_;
      broken.push_back(std::move(pooled));
    }
    line_.push_back(waiter);
    opens = count_one_more();
  }
  broken.clear();
  if (opens) open_one_more(executor);

  const auto reason = co_await waiter->wake_up->wait(limits.deadline, limits.stop);
  bool connecting = false;
  {
    const std::lock_guard lock(mutex_);
    std::erase(line_, waiter);
    connecting = opening_ > 0;
  }
  // Nobody gives it anything any more.
  if (waiter->error) std::rethrow_exception(waiter->error);
  if (waiter->pooled.connection) {
    if (reason == async::WakeUp::Reason::woken) co_return std::move(waiter->pooled);
    give_back(std::move(waiter->pooled));
  }
  if (connecting || reason == async::WakeUp::Reason::stopped) {
    async::give_up(reason, "PostgreSQL could not be connected to in time");
  }
  throw LockError(ErrorCode::rate_limited,
                  "all connections to PostgreSQL were in use; the option pool sets their number");
}

// Under the mutex: if somebody waits and there may be one more, counts it; whoever is told so opens it.
bool Pool::count_one_more() {
  if (closed_ || line_.empty() || open_ >= most_) return false;
  ++open_;
  ++opening_;
  return true;
}

void Pool::open_one_more(const asio::any_io_executor& executor) { async::spawn(executor, open(executor)); }

asio::awaitable<void> Pool::open(asio::any_io_executor executor) {
  const auto self = shared_from_this();
  Pooled pooled;
  pooled.strand = asio::make_strand(executor);
  std::exception_ptr error;
  try {
    const CallLimits limits{stop_.get_token(), std::chrono::steady_clock::time_point::max()};
    pooled.connection = co_await Connection::open(connection_, connect_timeout_, prepare_, pooled.strand, limits);
  } catch (const LockError&) {
    error = std::current_exception();
  } catch (const std::exception&) {
    error =
        std::make_exception_ptr(LockError(ErrorCode::service_unavailable, "no connection to PostgreSQL could be made",
                                          Effect::none, {.cause = std::current_exception()}));
  }
  bool again = false;
  {
    const std::lock_guard lock(mutex_);
    --opening_;
    if (error) {
      --open_;
      if (!line_.empty()) {
        line_.front()->error = error;
        line_.front()->wake_up->wake();
        line_.pop_front();
      }
      // Each of the others learns for itself.
      again = count_one_more();
    }
  }
  if (!error) give_back(std::move(pooled));
  if (again) open_one_more(executor);
}

void Pool::give_back(Pooled pooled) {
  const auto executor = pooled.strand;
  const bool usable = pooled.connection->is_usable();
  bool opens = false;
  Pooled of_no_more_use;
  {
    const std::lock_guard lock(mutex_);
    if (!usable || closed_) {
      of_no_more_use = std::move(pooled);
      --open_;
      opens = count_one_more();
    } else if (line_.empty()) {
      idle_.push_back(std::move(pooled));
    } else {
      line_.front()->pooled = std::move(pooled);
      line_.front()->wake_up->wake();
      line_.pop_front();
    }
  }
  // Closed before another one is opened.
  of_no_more_use.connection.reset();
  if (opens) open_one_more(executor);
}

void Pool::close() {
  std::vector<Pooled> idle;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    idle = std::exchange(idle_, {});
    open_ -= idle.size();
    for (const auto& waiter : std::exchange(line_, {})) {
      waiter->error = std::make_exception_ptr(LockError(ErrorCode::aborted, "the client is closed"));
      waiter->wake_up->wake();
    }
  }
  std::stop_source(stop_).request_stop();
}

}  // namespace syncguard::postgres
