// One connection to PostgreSQL: libpq, without ever blocking.
#pragma once

#include "net/fork_guard.hpp"

#include <syncguard/backend.hpp>
#include <syncguard/postgres.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

struct pg_cancel;
struct pg_conn;
struct pg_result;

namespace syncguard::postgres {

// Connects, and waits for it; PQstatus says whether that worked.
pg_conn* connect_blocking(const std::string& connection, std::chrono::milliseconds timeout);

// A statement with its values. It is prepared under its name and a hash of its text: behind a pooler, others may have
// prepared their own under the same name.
struct Statement {
  std::string_view name;
  const std::string* sql;
  std::vector<std::string> values{};
};

// The rows of one statement, as text.
class Rows {
 public:
  explicit Rows(pg_result* result) noexcept : result_(result, clear) {}

  [[nodiscard]] int count() const noexcept;
  [[nodiscard]] std::string text(int row, int column) const;
  // Throws LockError(internal) if it is no number.
  [[nodiscard]] std::int64_t number(int row, int column) const;

 private:
  static void clear(pg_result* result) noexcept;
  std::unique_ptr<pg_result, void (*)(pg_result*)> result_;
};

// Used by one coroutine at a time.
class Connection {
 public:
  // Connects on a thread of its own, since libpq resolves names and reads files while it does. Throws LockError. A
  // thread that hangs is left behind, and ends by itself.
  static asio::awaitable<std::unique_ptr<Connection>> open(const std::string& connection,
                                                           std::chrono::milliseconds connect_timeout, bool prepare,
                                                           const asio::any_io_executor& executor, CallLimits limits);

  // Takes over what libpq opened.
  Connection(const asio::any_io_executor& executor, pg_conn* connection, bool prepare);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends all statements at once and returns the rows of the last but one, which comes before a COMMIT; or of the last,
  // where there is only one. Throws LockError; afterwards is_usable() says whether the connection is still good, and no
  // transaction is open on it. Errors are in doubt if the connection was lost.
  asio::awaitable<Rows> run(const std::vector<Statement>& statements);

  // False after the connection was lost.
  [[nodiscard]] bool is_open() const noexcept;
  // False after the connection was lost, or closed by the server while nobody used it.
  [[nodiscard]] bool is_usable();

  // Ends, on the server, what run() does. On any thread, also when the connection is gone; blocks for as long as
  // connecting takes.
  [[nodiscard]] std::function<void()> canceller() const;

  // For a connection that listens: the payloads of all notifications, as soon as there are some, or none by the given
  // time. Throws LockError when the connection is lost.
  asio::awaitable<std::vector<std::string>> notifications(std::chrono::steady_clock::time_point until);
  // Makes what is under way fail. Only where the executor is a strand, and on it.
  void close() noexcept;

 private:
  asio::awaitable<void> wait(asio::posix::stream_descriptor::wait_type what);
  asio::awaitable<void> flush();
  asio::awaitable<pg_result*> next_result();
  asio::awaitable<void> roll_back();
  void send(const Statement& statement, std::vector<std::string>& prepares);
  [[noreturn]] void throw_lost() const;

  pg_conn* const connection_;
  const std::shared_ptr<pg_cancel> cancel_;
  asio::posix::stream_descriptor descriptor_;
  bool closed_ = false;
  bool listens_ = false;
  std::optional<net::ForkGuard> fork_guard_;
  const bool prepare_;
  std::set<std::string, std::less<>> prepared_;
};

}  // namespace syncguard::postgres
