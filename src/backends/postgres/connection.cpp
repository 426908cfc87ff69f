#include "backends/postgres/connection.hpp"

#include "async/patience.hpp"
#include "async/run_aside.hpp"
#include "backends/postgres/server_error.hpp"
#include "core/with_cause.hpp"

#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>

#include <libpq-fe.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <system_error>
#include <utility>

namespace syncguard::postgres {
namespace {

using OwnedConnection = std::unique_ptr<PGconn, void (*)(PGconn*)>;

std::string words_of(const PGconn* connection) { return PQerrorMessage(connection); }

}  // namespace

pg_conn* connect_blocking(const std::string& connection, std::chrono::milliseconds timeout) {
  // libpq counts in seconds, and takes less than two for two. Later values win over those in the text.
  const auto seconds = std::to_string(std::chrono::ceil<std::chrono::seconds>(timeout).count());
  const std::array names = {"fallback_application_name", "dbname", "connect_timeout", "client_encoding",
                            static_cast<const char*>(nullptr)};
  const std::array values = {"syncguard", connection.c_str(), seconds.c_str(), "UTF8",
                             static_cast<const char*>(nullptr)};
  constexpr int expand_dbname = 1;
  return PQconnectdbParams(names.data(), values.data(), expand_dbname);
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
    throw LockError(ErrorCode::internal, "PostgreSQL answered something that its statements never do");
  }
  return value;
}

// ---------------------------------------------------------------------------------------------------------------------
// Connecting

asio::awaitable<std::unique_ptr<Connection>> Connection::open(const std::string& connection,
                                                              std::chrono::milliseconds connect_timeout, bool prepare,
                                                              const asio::any_io_executor& executor,
                                                              CallLimits limits) {
  std::function<OwnedConnection()> connect = [connection, connect_timeout] {
    return OwnedConnection(connect_blocking(connection, connect_timeout), PQfinish);
  };
  auto connected = co_await async::run_aside("syncguard-pg", std::move(connect), limits,
                                             "PostgreSQL could not be connected to in time");
  if (PQstatus(connected.get()) != CONNECTION_OK) throw connect_error(words_of(connected.get()));
  co_return std::make_unique<Connection>(executor, connected.release(), prepare);
}

Connection::Connection(const asio::any_io_executor& executor, pg_conn* connection, bool prepare)
    : connection_(connection),
      cancel_(PQgetCancel(connection), PQfreeCancel),
      descriptor_(executor, PQsocket(connection)),
      fork_guard_(PQsocket(connection)),
      prepare_(prepare) {
  PQsetnonblocking(connection_, 1);
  PQenterPipelineMode(connection_);
  // What the server says beside its answers is for nobody.
  PQsetNoticeProcessor(
      connection_, [](void*, const char*) {}, nullptr);
}

Connection::~Connection() {
  // The descriptor is libpq's; its number is somebody else's as soon as it is closed.
  descriptor_.release();
  fork_guard_.reset();
  PQfinish(connection_);
}

// ---------------------------------------------------------------------------------------------------------------------
// Statements

void Connection::throw_lost() const {
  throw core::with_cause(ErrorCode::service_unavailable, "the connection to PostgreSQL was lost", words_of(connection_),
                         Effect::in_doubt);
}

asio::awaitable<void> Connection::wait(asio::posix::stream_descriptor::wait_type what) {
  asio::error_code error;
  if (!closed_) co_await descriptor_.async_wait(what, asio::redirect_error(asio::use_awaitable, error));
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

asio::awaitable<pg_result*> Connection::next_result() {
  while (PQisBusy(connection_) != 0) {
    co_await wait(asio::posix::stream_descriptor::wait_read);
    if (PQconsumeInput(connection_) == 0) throw_lost();
  }
  co_return PQgetResult(connection_);
}

void Connection::send(const Statement& statement, std::vector<std::string>& prepares) {
  std::vector<const char*> values;
  values.reserve(statement.values.size());
  for (const auto& value : statement.values) values.push_back(value.c_str());
  const int count = static_cast<int>(values.size());
  int sent = 1;
  if (prepare_) {
    const auto name = std::string(statement.name) + "_" + std::to_string(std::hash<std::string>{}(*statement.sql));
    if (!prepared_.contains(name) && std::ranges::find(prepares, name) == prepares.end()) {
      sent = PQsendPrepare(connection_, name.c_str(), statement.sql->c_str(), 0, nullptr);
      prepares.push_back(name);
    }
    sent = sent != 0 ? PQsendQueryPrepared(connection_, name.c_str(), count, values.data(), nullptr, nullptr, 0) : 0;
  } else {
    sent = PQsendQueryParams(connection_, statement.sql->c_str(), count, nullptr, values.data(), nullptr, nullptr, 0);
  }
  if (sent == 0) throw_lost();
}

asio::awaitable<Rows> Connection::run(const std::vector<Statement>& statements) {
  // What libpq will answer, in order: for each statement, perhaps first that it was prepared.
  std::vector<std::string> prepares;
  std::vector<const Statement*> answers;  // null: something was prepared
  for (const auto& statement : statements) {
    const auto before = prepares.size();
    send(statement, prepares);
    if (prepares.size() != before) answers.push_back(nullptr);
    answers.push_back(&statement);
  }
  if (PQpipelineSync(connection_) == 0) throw_lost();
  co_await flush();

  std::optional<Rows> wanted;
  std::optional<LockError> failure;
  const auto* const wanted_statement = &statements[statements.size() > 1 ? statements.size() - 2 : 0];
  std::size_t answered = 0;
  std::size_t prepared = 0;
  for (;;) {
    auto* result = co_await next_result();
    if (result == nullptr) {
      if (PQstatus(connection_) != CONNECTION_OK) throw_lost();
      continue;
    }
    Rows rows(result);
    const auto status = PQresultStatus(result);
    if (status == PGRES_PIPELINE_SYNC) break;
    const bool worked = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
    if (!worked && status != PGRES_PIPELINE_ABORTED && !failure) {
      const char* sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
      failure = server_error(sqlstate != nullptr ? sqlstate : "", PQresultErrorMessage(result));
      // The server ends the connection: nobody knows how far it came.
      if (PQstatus(connection_) != CONNECTION_OK) failure = failure->as_in_doubt();
    }
    if (answered < answers.size()) {
      const auto* statement = answers[answered++];
      if (statement == nullptr) {
        if (worked) prepared_.emplace(prepares[prepared]);
        ++prepared;
      } else if (statement == wanted_statement && worked) {
        wanted.emplace(std::move(rows));
      }
    }
  }
  if (PQtransactionStatus(connection_) != PQTRANS_IDLE) co_await roll_back();
  if (!listens_) {
    // Behind a pooler, somebody else's may come here.
    while (auto* notification = PQnotifies(connection_)) PQfreemem(notification);
  }
  if (failure) throw LockError(*failure);
  if (!wanted) throw LockError(ErrorCode::internal, "PostgreSQL did not answer everything", Effect::in_doubt);
  co_return std::move(*wanted);
}

// After an error inside a transaction.
asio::awaitable<void> Connection::roll_back() {
  if (PQsendQueryParams(connection_, "ROLLBACK", 0, nullptr, nullptr, nullptr, nullptr, 0) == 0 ||
      PQpipelineSync(connection_) == 0) {
    throw_lost();
  }
  co_await flush();
  for (;;) {
    auto* result = co_await next_result();
    if (result == nullptr) {
      if (PQstatus(connection_) != CONNECTION_OK) throw_lost();
      continue;
    }
    const Rows rows(result);
    if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) co_return;
  }
}

bool Connection::is_open() const noexcept { return !closed_ && PQstatus(connection_) == CONNECTION_OK; }

bool Connection::is_usable() {
  if (closed_ || PQstatus(connection_) != CONNECTION_OK || PQtransactionStatus(connection_) != PQTRANS_IDLE)
    return false;
  // Between operations a server says nothing, unless that it ends the connection.
  pollfd waiting{.fd = PQsocket(connection_), .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, 0) == 0;
}

std::function<void()> Connection::canceller() const {
  return [request = cancel_] {
    std::array<char, 256> words{};
    if (request) PQcancel(request.get(), words.data(), static_cast<int>(words.size()));
  };
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
  // Those that came with the answers to statements.
  collect();
  listens_ = true;
  const async::Patience patience(descriptor_.get_executor(), until, [this] {
    asio::error_code ignored;
    descriptor_.cancel(ignored);
  });
  while (payloads.empty() && !patience.ran_out()) {
    asio::error_code error;
    co_await descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                                    asio::redirect_error(asio::use_awaitable, error));
    if (patience.ran_out()) break;
    if (error || closed_ || PQconsumeInput(connection_) == 0) throw_lost();
    collect();
  }
  co_return payloads;
}

void Connection::close() noexcept {
  closed_ = true;
  asio::error_code ignored;
  descriptor_.cancel(ignored);
}

}  // namespace syncguard::postgres
