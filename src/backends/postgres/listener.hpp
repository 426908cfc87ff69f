// How waiters learn that it is their turn: one connection for all of a client's.
#pragma once

#include "async/wake_up.hpp"
#include "backends/postgres/connection.hpp"
#include "net/waiters.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace syncguard::postgres {

// Opened on first use. While anybody waits, it shows every ten seconds that they are still there.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // seen is the statement that says so.
  Listener(std::string connection, std::chrono::milliseconds connect_timeout, std::string seen);

  // From the moment it returns, wake is called, on any thread, when it may be this waiter's turn. Again: makes sure
  // that it still is so. Throws LockError.
  asio::awaitable<void> add(LockId waiter, std::function<void()> wake, CallLimits limits);
  void remove(const LockId& waiter) { waiters_.remove(waiter); }

  void close();

 private:
  asio::awaitable<void> listen();
  asio::awaitable<void> listen_until_lost();
  void wake_those_who_connect();
  [[nodiscard]] std::string everybody() const;

  const std::string connection_;
  const std::chrono::milliseconds connect_timeout_;
  const std::string seen_;
  const std::stop_source stop_;
  net::Waiters waiters_;

  std::mutex mutex_;
  enum class State { idle, connecting, listening, closed } state_ = State::idle;
  asio::any_io_executor strand_;
  Connection* listening_ = nullptr;
  std::optional<LockError> failure_;
  std::vector<std::shared_ptr<async::WakeUp>> waiting_for_connection_;
};

}  // namespace syncguard::postgres
