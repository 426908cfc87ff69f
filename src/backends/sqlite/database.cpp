#include "backends/sqlite/database.hpp"

#include "sqlite_sql.hpp"

#include <sqlite3.h>

#include <chrono>
#include <thread>
#include <utility>

namespace syncguard::sqlite {
namespace {

// "SyGu". Tells our files from those of others.
constexpr std::int64_t application_id = 0x53794775;
constexpr std::int64_t schema_version = 1;

ErrorCode code_of(int extended_result) {
  switch (extended_result & 0xff) {
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      return ErrorCode::service_unavailable;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return ErrorCode::auth_failed;
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
    case SQLITE_NOTADB:
      return ErrorCode::invalid_argument;
    case SQLITE_FULL:
      return ErrorCode::rate_limited;
    case SQLITE_BUSY:
      return ErrorCode::network_timeout;
    default:
      return ErrorCode::internal;
  }
}

std::string advice(int extended_result) {
  switch (extended_result & 0xff) {
    case SQLITE_BUSY:
      return "; another process kept the database busy until the time-out";
    case SQLITE_READONLY:
      return "; the file and its folder must be writable";
    case SQLITE_FULL:
      return "; make room on the disk";
    case SQLITE_CORRUPT:
      return "; restore the file from a backup, or stop all its users and remove it with its -wal and -shm (fences "
             "then begin anew)";
    default:
      return "";
  }
}

// Not sqlite3_errmsg, which may repeat what was bound.
[[noreturn]] void fail(int extended_result) {
  throw LockError(code_of(extended_result),
                  std::string("SQLite: ") + sqlite3_errstr(extended_result) + advice(extended_result));
}

// With shorter pauses the file changes hands more often. Of 0.2 ms, measured: a key that many want is a third faster,
// and four processes with keys of their own are a third slower.
int wait_a_little(void* keep_waiting, int /*times*/) {
  if (!(*static_cast<std::function<bool()>*>(keep_waiting))()) return 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return 1;
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------------
// Query

Query::~Query() { sqlite3_reset(statement_); }

Query& Query::bind(int index, std::string_view text) {
  const int result = sqlite3_bind_text(statement_, index, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
  if (result != SQLITE_OK) fail(result);
  return *this;
}

Query& Query::bind(int index, std::int64_t number) {
  const int result = sqlite3_bind_int64(statement_, index, number);
  if (result != SQLITE_OK) fail(result);
  return *this;
}

bool Query::next() {
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  fail(sqlite3_extended_errcode(sqlite3_db_handle(statement_)));
}

std::string Query::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

std::int64_t Query::number(int column) const { return sqlite3_column_int64(statement_, column); }

// ---------------------------------------------------------------------------------------------------------------------
// Database

Database::Database(const std::filesystem::path& path, Hooks hooks)
    : hooks_(std::move(hooks)), in_use_(path), connection_(nullptr, &sqlite3_close_v2) {
  sqlite3* opened = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &opened,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  connection_.reset(opened);
  if (result != SQLITE_OK) fail(result);
  // Of a text in a file that anybody may have written. Ours are far shorter.
  constexpr int longest_text = 1'000'000;
  sqlite3_limit(connection_.get(), SQLITE_LIMIT_LENGTH, longest_text);
  sqlite3_busy_handler(connection_.get(), wait_a_little, &hooks_.keep_waiting);
  prepare_file();
}

Database::~Database() = default;

void Database::prepare_file() {
  // Before anything is changed: is it ours, or empty? Both in one transaction, for another process may be making it.
  execute("BEGIN");
  const auto tables = pragma("SELECT count(*) FROM sqlite_schema");
  const auto owner = pragma("PRAGMA application_id");
  execute("COMMIT");
  if (owner != application_id && (owner != 0 || tables != 0)) {
    throw LockError(ErrorCode::invalid_argument,
                    "the file is a database of another program; nothing in it was changed. Choose another path");
  }
  use_wal();
  execute("PRAGMA synchronous = FULL");
  const auto version = pragma("PRAGMA user_version");
  if (version > schema_version) {
    throw LockError(ErrorCode::invalid_argument, "the file was made by a newer version of SyncGuard");
  }
  if (version == schema_version) return;
  transaction([this] {
    execute(sql::schema.data());
    execute(("PRAGMA application_id = " + std::to_string(application_id)).c_str());
    execute(("PRAGMA user_version = " + std::to_string(schema_version)).c_str());
    return true;
  });
}

void Database::complete_schema() {
  transaction([this] {
    execute(sql::schema.data());
    return true;
  });
}

void Database::use_wal() {
  for (;;) {
    sqlite3_stmt* prepared = nullptr;
    const int result = sqlite3_prepare_v2(connection_.get(), "PRAGMA journal_mode = WAL", -1, &prepared, nullptr);
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, &sqlite3_finalize);
    if (result != SQLITE_OK) fail(result);
    if (sqlite3_step(prepared) == SQLITE_ROW) {
      const std::string mode = reinterpret_cast<const char*>(sqlite3_column_text(prepared, 0));
      if (mode == "wal") return;
      throw LockError(ErrorCode::invalid_argument, "SQLite cannot keep a write-ahead log at this place");
    }
    // This one does not ask the busy handler.
    const int problem = sqlite3_extended_errcode(connection_.get());
    if ((problem & 0xff) != SQLITE_BUSY || wait_a_little(&hooks_.keep_waiting, 0) == 0) fail(problem);
  }
}

bool Database::has_moved() noexcept {
  int moved = 0;
  return sqlite3_file_control(connection_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved != 0;
}

Query Database::query(std::string_view sql) {
  auto found = statements_.find(sql.data());
  if (found == statements_.end()) {
    sqlite3_stmt* statement = nullptr;
    const int result = sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                          SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (result != SQLITE_OK) fail(result);
    found =
        statements_
            .emplace(sql.data(), std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>(statement, &sqlite3_finalize))
            .first;
  }
  return Query(found->second.get());
}

void Database::begin() { query("BEGIN IMMEDIATE").run(); }

void Database::commit() {
  try {
    query("COMMIT").run();
  } catch (const LockError& error) {
    throw error.as_in_doubt();
  }
}

void Database::roll_back() noexcept {
  // An error may have rolled back already; then there is nothing to do.
  if (sqlite3_get_autocommit(connection_.get()) == 0) {
    sqlite3_exec(connection_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

void Database::execute(const char* sql) {
  const int result = sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) fail(result);
}

std::int64_t Database::pragma(const char* sql) {
  sqlite3_stmt* prepared = nullptr;
  const int result = sqlite3_prepare_v2(connection_.get(), sql, -1, &prepared, nullptr);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, &sqlite3_finalize);
  if (result != SQLITE_OK) fail(result);
  Query query(prepared);
  return query.next() ? query.number(0) : 0;
}

}  // namespace syncguard::sqlite
