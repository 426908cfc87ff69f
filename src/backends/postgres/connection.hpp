// One connection to PostgreSQL: libpq in non-blocking mode.
#pragma once

#include "os/descriptor.hpp"
#include "os/fork.hpp"
#include "os/password.hpp"

#include <syncguard/backend.hpp>
#include <syncguard/postgres.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

struct pg_cancel;
struct pg_conn;
struct pg_result;

namespace syncguard::postgres {

// How to connect.
struct ConnectOptions {
  // libpq's connection string.
  std::string connection;
  // The timeout for each host.
  std::chrono::milliseconds timeout;
  // Called for each connection, if set.
  os::PasswordCallback password{};
};

// Connects, and blocks until that succeeds or fails; see PQstatus. Notices from the server are discarded. Throws
// LockError if the password callback fails.
pg_conn* connect_blocking(const ConnectOptions& options);

// How a connection is protected against eavesdropping and against a false server.
struct Security {
  // Through a Unix socket, or within this host.
  bool local = false;
  bool encrypted = false;
  // The value that libpq applies, from the URL, service file or environment.
  std::string sslmode{};
};

// A statement with its parameters.
struct Statement {
  const std::string* sql;
  std::vector<std::string> values{};
  // For statements that are sent often: the server parses and plans each of them once per connection, unless there is a
  // pooler in between. See docs/adr/0044-prepared-statements-without-a-pooler.md.
  bool is_prepared = false;
};

// The rows of one statement, as text.
class Rows {
 public:
  explicit Rows(pg_result* result) noexcept : result_(result, clear) {}

  [[nodiscard]] int count() const noexcept;
  [[nodiscard]] std::string text(int row, int column) const;
  // Throws LockError(internal) if the text is not a number.
  [[nodiscard]] std::int64_t number(int row, int column) const;

 private:
  static void clear(pg_result* result) noexcept;
  std::unique_ptr<pg_result, void (*)(pg_result*)> result_;
};

// Used by one coroutine at a time.
class Connection {
 public:
  // Connects on a separate thread, because libpq resolves names and reads files while connecting. Throws LockError. A
  // thread that hangs is detached.
  static asio::awaitable<std::unique_ptr<Connection>> open(ConnectOptions options,
                                                           const asio::any_io_executor& executor, CallLimits limits);

  // Takes ownership of the libpq connection.
  Connection(const asio::any_io_executor& executor, pg_conn* connection);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends all statements together, as one transaction, and returns the rows of the last one that returns any. Throws
  // LockError; afterwards is_idle() says whether the connection can be reused, and no transaction is open on it.
  // Errors are in doubt if the connection was lost, or if the server warned while it committed.
  asio::awaitable<Rows> run(const std::vector<Statement>& statements);
  // The two halves of run(). send() does not wait, and need not run on the connection's executor.
  void send(const std::vector<Statement>& statements);
  asio::awaitable<Rows> receive(const std::vector<Statement>& statements);
  // Like receive(), for a thread that would otherwise only wait for it: blocks. Returns nullopt if the limits end
  // first, or if something has to be rolled back or sent again; receive() then continues.
  std::optional<Rows> receive_blocking(const CallLimits& limits);

  // The strand on which asynchronous replies arrive.
  [[nodiscard]] asio::any_io_executor executor() noexcept { return watched_.get_executor(); }
  [[nodiscard]] Security security() const;

  // False after the connection was lost, or the server turned out to be read-only.
  [[nodiscard]] bool is_open() const noexcept;
  // True after the server turned out to be read-only, like an old primary after a failover. Other connections to that
  // server are useless, too.
  [[nodiscard]] bool is_read_only() const noexcept { return read_only_; }
  // Whether the next run() can start: the connection is open, and no transaction is.
  [[nodiscard]] bool is_idle() const noexcept;
  // Closes an idle connection that the server has closed.
  void close_if_stale() noexcept;

  // Asks the server to cancel the current run(), on a thread of its own: libpq's call has no timeout, and blocks while
  // the server hangs. Does nothing while the previous request of this connection is still on its way, or if too many
  // are: at most four for each server and sixteen in this process. The thread may outlive this connection. Throws
  // std::system_error if no thread can be started.
  void request_cancel();

  // For a listening connection: waits for notifications and returns their payloads; empty if none arrives by the given
  // time. Throws LockError if the connection is lost.
  asio::awaitable<std::vector<std::string>> notifications(std::chrono::steady_clock::time_point until);
  // Makes pending operations fail. The executor must be a strand, and the caller must run on it.
  void close() noexcept;

 private:
  // One of the messages that a request consists of. Each has one result.
  struct Message {
    enum class Kind { statement, prepare, backend_id };
    Kind kind;
    const std::string* sql;
  };
  // The reply to the current request, as far as it was read.
  struct Reply {
    std::vector<Message> sent{};
    // How many messages have a result.
    std::size_t answered = 0;
    // Of the last statement that returned any.
    std::optional<Rows> rows{};
    std::optional<LockError> failure{};
    // The server rejected a prepared statement or the question for its id. The request had no effect, and is sent again
    // without them.
    bool must_be_repeated = false;
    // The server reported success, but warned: it no longer waits for a synchronous standby.
    bool has_warning = false;
    bool is_complete = false;
  };

  // Called by libpq.
  static void receive_notice(void* connection, const pg_result* notice) noexcept;
  [[nodiscard]] asio::error_code start_watching();
  void stop_watching();
  asio::awaitable<void> wait(asio::posix::stream_descriptor::wait_type what);
  asio::awaitable<void> flush();
  // Returns null if no result has arrived. Throws LockError for a reply that cannot belong to our statements.
  pg_result* take_result();
  // Never null.
  asio::awaitable<pg_result*> next_result();
  // Adds a result to reply_.
  void add_to_reply(pg_result* result);
  // After the reply is complete.
  Rows take_reply();
  // Prepares the statement with the next request if that was not done before. Returns its name.
  const std::string& prepare(const Statement& statement);
  // Throws LockError if the connection is lost, or the server sends too much.
  void consume_input();
  [[noreturn]] void refuse_reply(const char* message);
  asio::awaitable<void> roll_back();
  [[noreturn]] void throw_lost() const;

  const std::unique_ptr<pg_conn, void (*)(pg_conn*)> owned_;
  pg_conn* const connection_;
  const std::shared_ptr<pg_cancel> cancel_;
  // Expires when the thread of request_cancel() ends.
  std::weak_ptr<const void> cancel_thread_;
  // A copy: libpq closes its own descriptor when the connection is lost, and the number may be in use again before this
  // object learns of it.
  const os::Descriptor copy_;
  // The same descriptor while the I/O thread watches it.
  asio::posix::stream_descriptor watched_;
  Reply reply_;
  // Whether the server has no pooler in front of it. Unknown before the first reply.
  std::optional<bool> is_direct_;
  // The names of prepared statements, by their text.
  std::unordered_map<std::string, std::string> prepared_;
  bool closed_ = false;
  // After request_cancel().
  bool canceled_ = false;
  // Whether nothing was read since the last request or notification.
  bool is_first_input_ = true;
  // The number of bytes that were read since then, except for the first input.
  std::int64_t received_ = 0;
  bool listens_ = false;
  const os::ForkGuard fork_guard_;
  const os::ForkGuard fork_guard_of_copy_;
  bool read_only_ = false;
};

}  // namespace syncguard::postgres
