// The connections of one client, at most so many at once.
#pragma once

#include "async/wake_up.hpp"
#include "backends/postgres/connection.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace syncguard::postgres {

// Opened on demand, kept when they are idle. Who finds none waits in line.
class Pool {
 public:
  // With a strand of its own: what runs on it is done by one thread at a time.
  struct Pooled {
    asio::any_io_executor strand;
    std::unique_ptr<Connection> connection;
  };

  Pool(std::string connection, const PostgresOptions& options);

  // Throws LockError: rate_limited if there was none by the deadline, aborted, and what connecting throws.
  asio::awaitable<Pooled> take(CallLimits limits);
  // Every one that was taken comes back; broken ones are closed.
  void give_back(Pooled pooled);
  // Closes those that are idle; the others when they come back. Who waits in line is aborted.
  void close();

 private:
  struct Waiter {
    std::shared_ptr<async::WakeUp> wake_up = std::make_shared<async::WakeUp>();
    // What it was given: a connection, or the right to open one.
    Pooled pooled{};
    bool may_open = false;
    bool closed = false;
  };

  asio::awaitable<Pooled> open(const CallLimits& limits);
  void pass_on_the_right_to_open();

  const std::string connection_;
  const PostgresOptions& options_;

  std::mutex mutex_;
  bool closed_ = false;
  std::size_t open_ = 0;
  std::vector<Pooled> idle_;
  std::deque<std::shared_ptr<Waiter>> line_;
};

}  // namespace syncguard::postgres
