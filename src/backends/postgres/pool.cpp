#include "backends/postgres/pool.hpp"

#include <asio/strand.hpp>
#include <asio/this_coro.hpp>

#include <algorithm>
#include <utility>

namespace syncguard::postgres {

Pool::Pool(std::string connection, const PostgresOptions& options)
    : connection_(std::move(connection)), options_(options) {}

asio::awaitable<Pool::Pooled> Pool::take(CallLimits limits) {
  std::shared_ptr<Waiter> waiter;
  std::vector<Pooled> broken;
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
    if (open_ < options_.pool) {
      ++open_;
    } else {
      waiter = std::make_shared<Waiter>();
      line_.push_back(waiter);
    }
  }
  if (!waiter) co_return co_await open(limits);

  const auto reason = co_await waiter->wake_up->wait(limits.deadline, limits.stop);
  bool may_open = false;
  Pooled pooled;
  {
    const std::lock_guard lock(mutex_);
    std::erase(line_, waiter);
    may_open = waiter->may_open;
    pooled = std::move(waiter->pooled);
    if (waiter->closed) throw LockError(ErrorCode::aborted, "the client is closed");
  }
  if (reason == async::WakeUp::Reason::woken) {
    if (pooled.connection) co_return pooled;
    if (may_open) co_return co_await open(limits);
  }
  // Too late for what it was given.
  if (pooled.connection) give_back(std::move(pooled));
  if (may_open) {
    const std::lock_guard lock(mutex_);
    pass_on_the_right_to_open();
  }
  if (reason == async::WakeUp::Reason::stopped) throw LockError(ErrorCode::aborted, "a stop was requested");
  throw LockError(ErrorCode::rate_limited,
                  "all connections to PostgreSQL were in use; the option pool sets their number");
}

asio::awaitable<Pool::Pooled> Pool::open(const CallLimits& limits) {
  Pooled pooled;
  pooled.strand = asio::make_strand(co_await asio::this_coro::executor);
  std::exception_ptr error;
  try {
    pooled.connection =
        co_await Connection::open(connection_, options_.connect_timeout, options_.prepare, pooled.strand, limits);
  } catch (...) {
    error = std::current_exception();
  }
  if (error) {
    const std::lock_guard lock(mutex_);
    pass_on_the_right_to_open();
    std::rethrow_exception(error);
  }
  co_return pooled;
}

// Under the mutex.
void Pool::pass_on_the_right_to_open() {
  if (line_.empty()) {
    --open_;
    return;
  }
  const auto next = std::move(line_.front());
  line_.pop_front();
  next->may_open = true;
  next->wake_up->wake();
}

void Pool::give_back(Pooled pooled) {
  const bool usable = pooled.connection->is_usable();
  const std::lock_guard lock(mutex_);
  if (!usable || closed_) {
    pass_on_the_right_to_open();
  } else if (line_.empty()) {
    idle_.push_back(std::move(pooled));
  } else {
    const auto next = std::move(line_.front());
    line_.pop_front();
    next->pooled = std::move(pooled);
    next->wake_up->wake();
  }
}

void Pool::close() {
  std::vector<Pooled> idle;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  idle = std::exchange(idle_, {});
  open_ -= idle.size();
  for (const auto& waiter : std::exchange(line_, {})) {
    waiter->closed = true;
    waiter->wake_up->wake();
  }
}

}  // namespace syncguard::postgres
