#include "backends/redis/replica_wait.hpp"

#include "async/spawn.hpp"
#include "backends/redis/errors.hpp"

#include <asio/execution/blocking.hpp>
#include <asio/require.hpp>
#include <asio/this_coro.hpp>

#include <exception>
#include <utility>

namespace syncguard::redis {

std::string wait_request(const RedisOptions& options) {
  return format_command(
      {"WAIT", std::to_string(options.min_replicas), std::to_string(options.replica_timeout.count())});
}

void expect_replicas(const Reply& reply, const RedisOptions& options) {
  if (reply.is_error()) throw server_error(reply.text);
  if (reply.kind != Reply::Kind::integer) {
    throw LockError(ErrorCode::internal, "unexpected reply from Redis to WAIT");
  }
  if (std::cmp_greater_equal(reply.integer, options.min_replicas)) return;
  throw LockError(
      ErrorCode::service_unavailable,
      "too few replicas of Redis confirmed a lock within replica_timeout: " + std::to_string(reply.integer) + " of " +
          std::to_string(options.min_replicas) + "; check the replicas, or lower min_replicas");
}

asio::awaitable<void> ReplicaWait::confirm(std::uint64_t connection, const CallLimits& limits) {
  const auto executor = co_await asio::this_coro::executor;
  const auto round = [&] {
    const std::lock_guard lock(mutex_);
    if (!next_) next_.emplace();
    if (!std::exchange(running_, true)) {
      async::spawn_on(asio::require(executor, asio::execution::blocking.never), run_rounds(), shared_from_this());
    }
    return *next_;
  }();
  co_await round.ready().wait(limits, "the replicas of Redis did not confirm a lock in time", Effect::in_doubt);
  try {
    const auto& answer = round.value();
    // Another connection may lead to another server, which knows nothing of the write.
    if (answer.connection != connection) {
      throw LockError(ErrorCode::service_unavailable,
                      "the connection to Redis was lost before its replicas confirmed a lock");
    }
    expect_replicas(answer.reply, *options_);
  } catch (const LockError& error) {
    // The write itself has taken effect.
    throw error.as_in_doubt();
  }
}

asio::awaitable<void> ReplicaWait::run_rounds() {
  while (const auto round = begin_round()) {
    try {
      auto answer = co_await send_();
      round->set_value(std::move(answer));
    } catch (...) {
      round->set_error(std::current_exception());
    }
  }
}

// nullopt if there are no more callers.
std::optional<ReplicaWait::Round> ReplicaWait::begin_round() {
  const std::lock_guard lock(mutex_);
  running_ = next_.has_value();
  return std::exchange(next_, std::nullopt);
}

}  // namespace syncguard::redis
