#include "backends/postgres/connection.hpp"

#include "async/run_on_thread.hpp"
#include "async/scoped_timeout.hpp"
#include "backends/postgres/errors.hpp"
#include "core/causes.hpp"
#include "os/threads.hpp"

#include <syncguard/storage_key.hpp>

#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>

#include <fcntl.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <functional>
#include <system_error>
#include <utility>

namespace syncguard::postgres {
namespace {

using OwnedConnection = std::unique_ptr<PGconn, void (*)(PGconn*)>;

// The peer is on this host if its address is our own or a loopback address. Unknown addresses count as remote.
bool is_local(int socket) {
  const auto address_of = [socket](int (*get)(int, sockaddr*, socklen_t*)) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    if (get(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) storage.ss_family = AF_UNSPEC;
    return storage;
  };
  const auto peer = address_of(getpeername);
  const auto own = address_of(getsockname);
  if (peer.ss_family == AF_UNIX) return true;
  if (peer.ss_family != own.ss_family) return false;
  if (peer.ss_family == AF_INET) {
    const auto number = [](const sockaddr_storage& address) {
      return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
    };
    return number(peer) == number(own) || number(peer) >> 24U == IN_LOOPBACKNET;
  }
  if (peer.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
    const auto& own_address = reinterpret_cast<const sockaddr_in6&>(own).sin6_addr;
    return IN6_ARE_ADDR_EQUAL(&address, &own_address) || IN6_IS_ADDR_LOOPBACK(&address);
  }
  return false;
}

// A thread of this process that cancels a request. The threads of a parent process do not exist in a forked child.
// Aligned, so that clang needs no library for its atomic operations.
struct alignas(8) CancelThread {
  unsigned fork_generation = 0;
  // A hash of the server's address. Zero in a free place.
  std::uint32_t server = 0;
};

// A thread is blocked while its server hangs. The limit for each server keeps requests to other servers cancelable. A
// silent network ends the thread by TCP keep-alive. Not guarded by a mutex, which a forked child could find locked.
constexpr int max_cancel_threads_per_server = 4;
constinit std::array<std::atomic<CancelThread>, 16> cancel_threads{};

// Returns null if there are too many. The thread counts until the pointer is destroyed.
std::shared_ptr<std::atomic<CancelThread>> add_cancel_thread(const std::string& server) {
  const CancelThread added{os::fork_generation(), static_cast<std::uint32_t>(std::hash<std::string>{}(server)) | 1U};
  const auto of_this_server = std::ranges::count_if(cancel_threads, [&](const CancelThread& thread) {
    return thread.fork_generation == added.fork_generation && thread.server == added.server;
  });
  if (of_this_server >= max_cancel_threads_per_server) return nullptr;
  for (auto& place : cancel_threads) {
    CancelThread before = place;
    const bool is_free = before.server == 0 || before.fork_generation != added.fork_generation;
    if (is_free && place.compare_exchange_strong(before, added)) {
      return {&place, [](std::atomic<CancelThread>* ended) { *ended = CancelThread{}; }};
    }
  }
  return nullptr;
}

// Blocks until the socket is readable or broken. Returns false if the limits end first.
bool wait_for_input(int socket, const CallLimits& limits) {
  // How often to look whether a stop was requested.
  constexpr std::chrono::milliseconds interval{20};
  pollfd waiting{.fd = socket, .events = POLLIN, .revents = 0};
  while (!limits.stop.stop_requested()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limits.deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    const auto timeout = limits.stop.stop_possible() ? std::min(left, interval) : std::min(left, 1000 * interval);
    if (poll(&waiting, 1, static_cast<int>(timeout.count())) > 0) return true;
  }
  return false;
}

std::string error_message(const PGconn* connection) { return PQerrorMessage(connection); }

}  // namespace

namespace {

// False if neither success nor failure is certain after a second.
bool connects_soon(PGconn* connection) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  auto next = PQstatus(connection) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
  while (next == PGRES_POLLING_READING || next == PGRES_POLLING_WRITING) {
    const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (remaining.count() <= 0) return false;
    if (os::is_exiting()) return true;
    constexpr std::chrono::milliseconds between_checks{20};
    const auto events = static_cast<short>(next == PGRES_POLLING_READING ? POLLIN : POLLOUT);
    pollfd waiting{.fd = PQsocket(connection), .events = events, .revents = 0};
    // A signal may interrupt it.
    if (poll(&waiting, 1, static_cast<int>(std::min(remaining, between_checks).count())) > 0) {
      next = PQconnectPoll(connection);
    }
  }
  return true;
}

// Reads the hosts as libpq does: from the connection string, otherwise from the environment.
bool has_several_hosts(const std::string& connection) {
  const auto lists_hosts = [](PQconninfoOption* options) {
    const std::unique_ptr<PQconninfoOption, void (*)(PQconninfoOption*)> owned(options, PQconninfoFree);
    for (const auto* option = options; option != nullptr && option->keyword != nullptr; ++option) {
      const std::string_view keyword(option->keyword);
      if ((keyword == "host" || keyword == "hostaddr") && option->val != nullptr &&
          std::string_view(option->val).find(',') != std::string_view::npos) {
        return true;
      }
    }
    return false;
  };
  return lists_hosts(PQconninfoParse(connection.c_str(), nullptr)) || lists_hosts(PQconndefaults());
}

}  // namespace

pg_conn* connect_blocking(const ConnectOptions& options) {
  // libpq takes whole seconds, and treats 1 as 2.
  const auto seconds = std::to_string(std::chrono::ceil<std::chrono::seconds>(options.timeout).count());
  const auto password = options.password ? os::ask_for_password(options.password) : std::string();
  // Values in dbname override earlier settings; later settings override those in dbname.
  std::vector<std::pair<const char*, const char*>> settings = {
      {"fallback_application_name", "syncguard"},
      // Detects a dead peer within a minute instead of the two hours that are the default of most systems.
      {"keepalives_idle", "30"},
      {"keepalives_interval", "10"},
      {"keepalives_count", "3"},
      {"tcp_user_timeout", "60000"},
      // If there are several hosts, only the primary can hold locks.
      {"target_session_attrs", has_several_hosts(options.connection) ? "read-write" : "any"},
      {"dbname", options.connection.c_str()},
      {"connect_timeout", seconds.c_str()},
      {"client_encoding", "UTF8"}};
  if (!password.empty()) settings.emplace_back("password", password.c_str());
  settings.emplace_back(nullptr, nullptr);
  std::vector<const char*> names;
  std::vector<const char*> values;
  for (const auto& [name, value] : settings) {
    names.push_back(name);
    values.push_back(value);
  }
  constexpr int expand_dbname = 1;
  auto* const connection = PQconnectStartParams(names.data(), values.data(), expand_dbname);
  // By default, libpq prints notices of the server as they are. This can be changed only after the start.
  PQsetNoticeProcessor(
      connection, [](void*, const char*) {}, nullptr);
  // Only libpq's blocking functions leave a silent address for the next one. PQreset is one of them, and starts again.
  if (!connects_soon(connection)) PQreset(connection);
  return connection;
}

// ---------------------------------------------------------------------------------------------------------------------
// Rows

void Rows::clear(pg_result* result) noexcept { PQclear(result); }
int Rows::count() const noexcept { return PQntuples(result_.get()); }
std::string Rows::text(int row, int column) const {
  return {PQgetvalue(result_.get(), row, column), static_cast<std::size_t>(PQgetlength(result_.get(), row, column))};
}
std::int64_t Rows::number(int row, int column) const {
  const auto digits = text(row, column);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw LockError(ErrorCode::internal, "unexpected reply from PostgreSQL");
  }
  return value;
}

// ---------------------------------------------------------------------------------------------------------------------
// Connecting

asio::awaitable<std::unique_ptr<Connection>> Connection::open(ConnectOptions options,
                                                              const asio::any_io_executor& executor,
                                                              CallLimits limits) {
  std::function<OwnedConnection()> connect = [options = std::move(options)] {
    return OwnedConnection(connect_blocking(options), PQfinish);
  };
  auto connected =
      co_await async::run_on_thread("syncguard-pg", std::move(connect), limits, "timed out connecting to PostgreSQL");
  if (PQstatus(connected.get()) != CONNECTION_OK) throw connect_error(error_message(connected.get()));
  co_return std::make_unique<Connection>(executor, connected.release());
}

Connection::Connection(const asio::any_io_executor& executor, pg_conn* connection)
    : owned_(connection, PQfinish),
      connection_(connection),
      cancel_(PQgetCancel(connection), PQfreeCancel),
      copy_(fcntl(PQsocket(connection), F_DUPFD_CLOEXEC, 0)),
      watched_(executor),
      fork_guard_(PQsocket(connection)),
      fork_guard_of_copy_(copy_.get()) {
  if (!copy_) throw std::system_error(errno, std::generic_category());
  PQsetNoticeReceiver(connection_, receive_notice, this);
  PQsetnonblocking(connection_, 1);
  PQenterPipelineMode(connection_);
}

// A commit that is canceled while it waits for a synchronous standby succeeds with a warning. Warnings with a context
// come from statements inside functions and triggers, for example when transaction ids run out. The severity is the
// same in every language.
void Connection::receive_notice(void* connection, const pg_result* notice) noexcept {
  const auto field = [notice](int name) {
    const char* const text = PQresultErrorField(notice, name);
    return std::string_view(text != nullptr ? text : "");
  };
  if (field(PG_DIAG_SEVERITY_NONLOCALIZED) == "WARNING" && field(PG_DIAG_CONTEXT).empty()) {
    static_cast<Connection*>(connection)->reply_.has_warning = true;
  }
}

Connection::~Connection() { stop_watching(); }

asio::error_code Connection::start_watching() {
  asio::error_code error;
  if (!watched_.is_open()) watched_.assign(copy_.get(), error);
  return error;
}

// copy_ stays open.
void Connection::stop_watching() {
  if (watched_.is_open()) watched_.release();
}

// ---------------------------------------------------------------------------------------------------------------------
// Statements

void Connection::throw_lost() const {
  throw core::with_cause(ErrorCode::service_unavailable, "the connection to PostgreSQL was lost",
                         error_message(connection_), Effect::in_doubt);
}

asio::awaitable<void> Connection::wait(asio::posix::stream_descriptor::wait_type what) {
  auto error = start_watching();
  if (!error && !closed_) co_await watched_.async_wait(what, asio::redirect_error(asio::use_awaitable, error));
  if (error || closed_) throw_lost();
}

asio::awaitable<void> Connection::flush() {
  for (;;) {
    const int left = PQflush(connection_);
    if (left == 0) co_return;
    if (left < 0) throw_lost();
    co_await wait(asio::posix::stream_descriptor::wait_write);
  }
}

pg_result* Connection::take_result() {
  while (PQisBusy(connection_) == 0) {
    auto* const result = PQgetResult(connection_);
    if (result == nullptr) {
      // A null result separates the results of two statements.
      if (PQstatus(connection_) != CONNECTION_OK) throw_lost();
      continue;
    }
    const auto status = PQresultStatus(result);
    if (status != PGRES_COPY_IN && status != PGRES_COPY_OUT && status != PGRES_COPY_BOTH) return result;
    // We send no COPY statement, and libpq would return this result forever.
    PQclear(result);
    refuse_reply("unexpected reply from PostgreSQL");
  }
  return nullptr;
}

asio::awaitable<pg_result*> Connection::next_result() {
  for (;;) {
    if (auto* const result = take_result()) co_return result;
    co_await wait(asio::posix::stream_descriptor::wait_read);
    consume_input();
  }
}

// libpq buffers input without a limit until a result is complete. The largest legitimate reply, that of a cleanup, has
// about two megabytes. The first input is not counted, because most replies consist of nothing else: libpq reads at
// most as much at once as fits into its buffer.
void Connection::consume_input() {
  if (std::exchange(is_first_input_, false)) {
    if (PQconsumeInput(connection_) == 0) throw_lost();
    return;
  }
  constexpr std::int64_t limit = 16 * 1024 * 1024;
  // The minimum that libpq reads at once. More input may arrive in the meantime.
  constexpr int min_read = 8192;
  const auto unread = [this] {
    int bytes = 0;
    return ioctl(PQsocket(connection_), FIONREAD, &bytes) == 0 ? bytes : 0;
  };
  const int before = unread();
  if (PQconsumeInput(connection_) == 0) throw_lost();
  received_ += std::max(before - unread(), std::min(before, min_read));
  if (received_ > limit) refuse_reply("PostgreSQL's reply is larger than any that locks need: is this PostgreSQL?");
}

void Connection::refuse_reply(const char* message) {
  closed_ = true;
  throw LockError(ErrorCode::internal, message, Effect::in_doubt);
}

asio::awaitable<Rows> Connection::run(const std::vector<Statement>& statements) {
  send(statements);
  co_return co_await receive(statements);
}

void Connection::send(const std::vector<Statement>& statements) {
  static const auto& backend_id = *new std::string("SELECT pg_catalog.pg_backend_pid()");
  received_ = 0;
  is_first_input_ = true;
  reply_ = {};
  bool asks_for_backend_id = !is_direct_.has_value();
  for (const auto& statement : statements) {
    // Before the first of them, so that the request has no effect if this fails.
    if (statement.is_prepared && std::exchange(asks_for_backend_id, false)) {
      if (PQsendQueryParams(connection_, backend_id.c_str(), 0, nullptr, nullptr, nullptr, nullptr, 0) == 0) {
        throw_lost();
      }
      reply_.sent.push_back({Message::Kind::backend_id, &backend_id});
    }
    std::vector<const char*> values;
    values.reserve(statement.values.size());
    for (const auto& value : statement.values) values.push_back(value.c_str());
    const auto count = static_cast<int>(values.size());
    const bool is_prepared = statement.is_prepared && is_direct_.value_or(false);
    const int sent = is_prepared ? PQsendQueryPrepared(connection_, prepare(statement).c_str(), count, values.data(),
                                                       nullptr, nullptr, 0)
                                 : PQsendQueryParams(connection_, statement.sql->c_str(), count, nullptr, values.data(),
                                                     nullptr, nullptr, 0);
    if (sent == 0) throw_lost();
    reply_.sent.push_back({Message::Kind::statement, statement.sql});
  }
  if (PQpipelineSync(connection_) == 0 || PQflush(connection_) < 0) throw_lost();
}

// The name is a hash of the text, so the same name always means the same statement, even if clients share a process of
// the server.
const std::string& Connection::prepare(const Statement& statement) {
  const auto found = prepared_.find(*statement.sql);
  if (found != prepared_.end()) return found->second;
  auto name = "syncguard_" + storage_hash(*statement.sql);
  const auto parameters = static_cast<int>(statement.values.size());
  if (PQsendPrepare(connection_, name.c_str(), statement.sql->c_str(), parameters, nullptr) == 0) throw_lost();
  reply_.sent.push_back({Message::Kind::prepare, statement.sql});
  return prepared_.emplace(*statement.sql, std::move(name)).first->second;
}

asio::awaitable<Rows> Connection::receive(const std::vector<Statement>& statements) {
  for (;;) {
    co_await flush();
    while (!reply_.is_complete) add_to_reply(co_await next_result());
    if (PQtransactionStatus(connection_) != PQTRANS_IDLE) co_await roll_back();
    // After a cancel request, the caller no longer waits for the reply.
    if (!reply_.must_be_repeated || canceled_) co_return take_reply();
    send(statements);
  }
}

std::optional<Rows> Connection::receive_blocking(const CallLimits& limits) {
  if (PQflush(connection_) != 0) return std::nullopt;
  // Otherwise each reply would wake the I/O thread, too.
  stop_watching();
  while (!reply_.is_complete) {
    if (auto* const result = take_result()) {
      add_to_reply(result);
    } else if (wait_for_input(PQsocket(connection_), limits)) {
      consume_input();
    } else {
      return std::nullopt;
    }
  }
  if (PQtransactionStatus(connection_) != PQTRANS_IDLE || reply_.must_be_repeated) return std::nullopt;
  return take_reply();
}

Rows Connection::take_reply() {
  if (!listens_) {
    // Behind a pooler, notifications of other clients may arrive here.
    while (auto* notification = PQnotifies(connection_)) PQfreemem(notification);
  }
  if (reply_.failure) throw LockError(*reply_.failure);
  if (reply_.answered != reply_.sent.size()) {
    throw LockError(ErrorCode::internal, "incomplete reply from PostgreSQL", Effect::in_doubt);
  }
  if (reply_.has_warning) {
    throw LockError(ErrorCode::service_unavailable,
                    "PostgreSQL warned while it committed, so that a synchronous standby may lack the change; the "
                    "warning is in the server's log",
                    Effect::in_doubt);
  }
  return std::move(*reply_.rows);
}

void Connection::add_to_reply(pg_result* result) {
  Rows rows(result);
  const auto status = PQresultStatus(result);
  if (status == PGRES_PIPELINE_SYNC) {
    reply_.is_complete = true;
    return;
  }
  // An error after the last statement comes from the commit.
  static const auto& commit = *new std::string("COMMIT");
  const auto message =
      reply_.answered < reply_.sent.size() ? reply_.sent[reply_.answered] : Message{Message::Kind::statement, &commit};
  ++reply_.answered;
  const bool worked = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
  if (!worked && message.kind == Message::Kind::prepare) prepared_.erase(*message.sql);
  if (!worked && status != PGRES_PIPELINE_ABORTED && !reply_.failure) {
    const auto field = [result](int name) {
      const char* const text = PQresultErrorField(result, name);
      return std::string(text != nullptr ? text : "");
    };
    const auto sqlstate = field(PG_DIAG_SQLSTATE);
    // 0A000 means, among other things, that tables were changed. A new connection helps in both cases.
    read_only_ = read_only_ || sqlstate == "25006" || sqlstate == "0A000";
    // A prepared statement does not exist, or exists already. Or we may not ask for the id of the server's process.
    if ((is_direct_.value_or(false) && (sqlstate == "26000" || sqlstate == "42P05")) ||
        (message.kind == Message::Kind::backend_id && sqlstate == "42501")) {
      is_direct_ = false;
      reply_.must_be_repeated = true;
    }
    // The context of an error names the failed statement inside a function.
    const auto where = *message.sql + field(PG_DIAG_CONTEXT);
    reply_.failure = server_error(sqlstate, PQresultErrorMessage(result), where);
    // The connection is closed, so it is unknown whether the request took effect.
    if (PQstatus(connection_) != CONNECTION_OK) reply_.failure = reply_.failure->as_in_doubt();
  }
  if (!worked) return;
  // A pooler invents the id that the client gets when it connects.
  if (message.kind == Message::Kind::backend_id) {
    is_direct_ = rows.count() == 1 && rows.text(0, 0) == std::to_string(PQbackendPID(connection_));
  }
  if (message.kind == Message::Kind::statement && (status == PGRES_TUPLES_OK || !reply_.rows)) {
    reply_.rows.emplace(std::move(rows));
  }
}

// Ends the transaction after an error.
asio::awaitable<void> Connection::roll_back() {
  if (PQsendQueryParams(connection_, "ROLLBACK", 0, nullptr, nullptr, nullptr, nullptr, 0) == 0 ||
      PQpipelineSync(connection_) == 0) {
    throw_lost();
  }
  co_await flush();
  for (;;) {
    auto* const result = co_await next_result();
    const Rows rows(result);
    if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) co_return;
  }
}

Security Connection::security() const {
  Security security{.local = is_local(PQsocket(connection_)), .encrypted = PQsslInUse(connection_) != 0};
  const std::unique_ptr<PQconninfoOption, void (*)(PQconninfoOption*)> options(PQconninfo(connection_), PQconninfoFree);
  for (const auto* option = options.get(); option != nullptr && option->keyword != nullptr; ++option) {
    if (std::string_view(option->keyword) == "sslmode" && option->val != nullptr) security.sslmode = option->val;
  }
  return security;
}

bool Connection::is_open() const noexcept { return !closed_ && !read_only_ && PQstatus(connection_) == CONNECTION_OK; }

bool Connection::is_idle() const noexcept { return is_open() && PQtransactionStatus(connection_) == PQTRANS_IDLE; }

void Connection::close_if_stale() noexcept {
  // Between operations a server sends nothing, unless it closes the connection.
  pollfd waiting{.fd = PQsocket(connection_), .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, 0) != 0) closed_ = true;
}

// A server that does not answer one cancel request would not answer more.
void Connection::request_cancel() {
  canceled_ = true;
  if (!cancel_ || !cancel_thread_.expired()) return;
  auto counted = add_cancel_thread(std::string(PQhost(connection_)) + ':' + PQport(connection_));
  if (!counted) return;
  cancel_thread_ = counted;
  // PgBouncer 1.18 crashes if the process ends, and with it the connection, before the cancel request was passed on to
  // the server.
  auto delays_exit = std::make_shared<os::DelaysExit>();
  os::start_thread("syncguard-pg", [delays_exit = std::move(delays_exit), counted = std::move(counted),
                                    request = cancel_] {
    std::array<char, 256> error{};
    PQcancel(request.get(), error.data(), static_cast<int>(error.size()));
  }).detach();
}

// ---------------------------------------------------------------------------------------------------------------------
// Listening

asio::awaitable<std::vector<std::string>> Connection::notifications(std::chrono::steady_clock::time_point until) {
  std::vector<std::string> payloads;
  const auto collect = [&] {
    while (auto* notification = PQnotifies(connection_)) {
      payloads.emplace_back(notification->extra);
      PQfreemem(notification);
    }
  };
  // Notifications that arrived together with replies to statements.
  collect();
  listens_ = true;
  received_ = 0;
  is_first_input_ = true;
  const async::ScopedTimeout scoped_timeout(watched_.get_executor(), until, [this] {
    asio::error_code ignored;
    watched_.cancel(ignored);
  });
  if (start_watching()) throw_lost();
  while (payloads.empty() && !scoped_timeout.has_expired()) {
    asio::error_code error;
    co_await watched_.async_wait(asio::posix::stream_descriptor::wait_read,
                                 asio::redirect_error(asio::use_awaitable, error));
    if (scoped_timeout.has_expired()) break;
    if (error || closed_) throw_lost();
    consume_input();
    collect();
  }
  co_return payloads;
}

void Connection::close() noexcept {
  closed_ = true;
  asio::error_code ignored;
  watched_.cancel(ignored);
}

}  // namespace syncguard::postgres
