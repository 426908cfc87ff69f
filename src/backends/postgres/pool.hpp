// The connections of one client, at most so many at once.
#pragma once

#include "async/wake_up.hpp"
#include "backends/postgres/connection.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

namespace syncguard::postgres {

// Who finds none that is idle waits in line, and one more is opened if there may be more. That goes on by itself: a
// server that takes longer to connect to than one operation may take is connected to all the same.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  // With a strand of its own: what runs on it is done by one thread at a time.
  struct Pooled {
    asio::any_io_executor strand;
    std::unique_ptr<Connection> connection;
  };

  explicit Pool(const PostgresOptions& options);

  // Throws LockError: rate_limited if all were in use until the deadline, network_timeout if connecting took that long,
  // aborted, and what connecting throws.
  asio::awaitable<Pooled> take(CallLimits limits);
  // Every one that was taken comes back; those that are not usable any more are closed.
  void give_back(Pooled pooled);
  // Closes those that are idle; the others when they come back. Who waits in line is aborted.
  void close();

 private:
  struct Waiter {
    std::shared_ptr<async::WakeUp> wake_up = std::make_shared<async::WakeUp>();
    // What it was given.
    Pooled pooled{};
    std::exception_ptr error{};
  };

  [[nodiscard]] bool count_one_more();
  void open_one_more(const asio::any_io_executor& executor);
  asio::awaitable<void> open(asio::any_io_executor executor);

  const std::string connection_;
  const std::chrono::milliseconds connect_timeout_;
  const bool prepare_;
  const std::size_t most_;
  const std::stop_source stop_;

  std::mutex mutex_;
  bool closed_ = false;
  // Idle, in use, or being opened.
  std::size_t open_ = 0;
  std::size_t opening_ = 0;
  std::vector<Pooled> idle_;
  std::deque<std::shared_ptr<Waiter>> line_;
};

}  // namespace syncguard::postgres
