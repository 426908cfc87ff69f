// Wakes waiters when it is their turn. One listening connection serves all waiters of a client.
#pragma once

#include "async/event.hpp"
#include "backends/postgres/connection.hpp"
#include "backends/postgres/statements.hpp"
#include "backends/waiters.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace syncguard::postgres {

// Opened on first use. While it has waiters, it updates their last-seen time every ten seconds.
class WakeListener : public std::enable_shared_from_this<WakeListener> {
 public:
  explicit WakeListener(ConnectOptions connect_options) : connect_options_(std::move(connect_options)) {}

  // Sets the statements for those updates.
  void use(std::shared_ptr<const Statements> statements);

  // After this returns, wake is called (on any thread) when it may be this waiter's turn. A repeated call makes sure
  // that the connection is still listening. Throws LockError. After a failed attempt to listen, throws the same error
  // for a while without another attempt.
  asio::awaitable<void> add(LockId waiter, std::function<void()> wake, CallLimits limits);
  void remove(const LockId& waiter) { waiters_.remove(waiter); }

  // The security of the last connection, if there was one.
  [[nodiscard]] std::optional<Security> security();
  [[nodiscard]] bool is_connected() noexcept;

  void close();

 private:
  asio::awaitable<void> listen();
  asio::awaitable<void> listen_until_lost();

  // Returns nullopt if the statements failed. Throws LockError if the connection was lost.
  asio::awaitable<std::optional<Rows>> run_transaction(Connection& connection, const Statements& sql,
                                                       std::vector<Statement> statements);
  asio::awaitable<Rows> run(Connection& connection, std::vector<Statement> statements);

  const ConnectOptions connect_options_;
  const std::stop_source stop_;
  backends::Waiters waiters_;

  std::mutex mutex_;
  std::shared_ptr<const Statements> statements_;
  enum class State { idle, connecting, listening, closed } state_ = State::idle;
  asio::any_io_executor strand_;
  Connection* listening_ = nullptr;
  std::optional<Security> security_;
  // Used only on the strand.
  bool has_listened_ = false;
  std::optional<LockError> failure_;
  // After a failure: the length of the pause before the next attempt, and its end.
  std::chrono::steady_clock::duration backoff_{};
  std::chrono::steady_clock::time_point retry_at_{};
  // Set when the current attempt to connect has succeeded or failed.
  async::Event attempt_ended_;
};

}  // namespace syncguard::postgres
