// The connections of one client, up to a limit.
#pragma once

#include "async/event.hpp"
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

// If no connection is idle, the caller queues; a new connection is opened while the pool is below its limit. Opening
// continues in the background, so a server that takes longer to connect to than one operation may take is still
// connected.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  // The connection has its own strand.
  struct Pooled {
    std::unique_ptr<Connection> connection;
    std::chrono::steady_clock::time_point opened_at{};
    std::chrono::steady_clock::time_point idle_since{};
  };

  explicit Pool(const PostgresOptions& options);

  // While one connection works and the server rejects more, callers wait for it, and no further connection is tried for
  // a second. Throws LockError: rate_limited if all connections were in use until the deadline, network_timeout if
  // connecting took that long, aborted, and connection errors if no connection works.
  asio::awaitable<Pooled> take(CallLimits limits);
  // Must be called for every connection that was taken. Connections are closed if they are unusable, older than the
  // maximum, idle for too long, or connected to a server that has become read-only.
  void give_back(Pooled pooled);
  // How many connections are open, idle or in use.
  [[nodiscard]] std::size_t size() noexcept;
  // Closes idle connections now and the others when they are returned. Queued callers are aborted.
  void close();

 private:
  [[nodiscard]] bool reserve_slot();
  // The promise must be in waiting_.
  asio::awaitable<Pooled> wait_for(async::Promise<Pooled> promise, const CallLimits& limits);
  [[nodiscard]] bool is_usable(const Pooled& pooled) const;
  enum class Idle { all, too_long };
  void take_out_idle(std::vector<Pooled>& taken, Idle which);
  void open_one_more();
  asio::awaitable<void> open();
  asio::awaitable<void> close_idle_ones();

  const ConnectOptions connect_options_;
  const std::chrono::milliseconds max_lifetime_;
  const std::chrono::milliseconds max_idle_;
  const std::size_t max_size_;
  const std::stop_source stop_;

  std::mutex mutex_;
  // The executor of the first caller; does not change afterwards. Not the strand of an earlier connection: the strand
  // of each new connection would contain those of all connections before it, and become slower and slower.
  asio::any_io_executor executor_;
  bool closed_ = false;
  bool closing_idle_ones_ = false;
  // Idle, in use, or being opened.
  std::size_t open_ = 0;
  std::size_t opening_ = 0;
  // Why the last attempt to open a connection failed, and until when none is opened while other connections work.
  std::exception_ptr last_failure_;
  std::chrono::steady_clock::time_point no_opening_before_{};
  std::vector<Pooled> idle_;
  std::deque<async::Promise<Pooled>> waiting_;
};

}  // namespace syncguard::postgres
