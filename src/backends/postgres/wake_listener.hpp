// Wakes waiters when it is their turn. One listening connection serves all waiters of a client.
#pragma once

#include "async/event.hpp"
#include "backends/look_loop.hpp"
#include "backends/postgres/connection.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

namespace syncguard::postgres {

// Opened on first use. A release notifies all clients: the client of the waiter whose turn it is wakes it. The others
// let their waiters for this key look when that turn ends, because it may not be used.
class WakeListener : public std::enable_shared_from_this<WakeListener> {
 public:
  // The name of a waiter is its token in the queue, and its topic is the hash of its key.
  WakeListener(ConnectOptions connect_options, std::shared_ptr<backends::LookLoop> looks)
      : connect_options_(std::move(connect_options)), looks_(std::move(looks)) {}

  // Returns when the connection is listening. Throws LockError. After a failed attempt to listen, throws the same error
  // for a while without another attempt.
  asio::awaitable<void> listen(CallLimits limits);

  // The security of the last connection, if there was one.
  [[nodiscard]] std::optional<Security> security();
  [[nodiscard]] bool is_connected() noexcept;

  void close();

 private:
  asio::awaitable<void> keep_listening();
  asio::awaitable<void> listen_until_lost();
  void on_notification(std::string_view payload);
  asio::awaitable<void> run(Connection& connection, const std::string& sql);

  const ConnectOptions connect_options_;
  const std::shared_ptr<backends::LookLoop> looks_;
  const std::stop_source stop_;

  std::mutex mutex_;
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
