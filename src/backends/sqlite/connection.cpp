#include "backends/sqlite/connection.hpp"

#include "core/durations.hpp"
#include "sqlite_sql.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace syncguard::sqlite {
namespace {

// "SyGu". Identifies SyncGuard's files.
constexpr std::int64_t application_id = 0x53794775;
constexpr std::int64_t schema_version = 2;

// Run in a transaction.
std::string create_schema() {
  // Appended one by one: g++ 12 warns about the sum of these strings.
  std::string text(sql::schema);
  text += "PRAGMA application_id = ";
  text += std::to_string(application_id);
  text += ";\nPRAGMA user_version = ";
  text += std::to_string(schema_version);
  text += ";\n";
  return text;
}

bool is_forbidden(int system_error) { return system_error == EACCES || system_error == EPERM || system_error == EROFS; }

ErrorCode code_of(int extended_result, int system_error) {
  switch (extended_result & 0xff) {
    case SQLITE_CANTOPEN:
      return is_forbidden(system_error) ? ErrorCode::auth_failed : ErrorCode::service_unavailable;
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
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
    case SQLITE_PROTOCOL:  // busy, where SQLite retries by itself instead of calling the busy handler
    case SQLITE_INTERRUPT:
      return ErrorCode::network_timeout;
    default:
      return ErrorCode::internal;
  }
}

std::string advice(int extended_result, int system_error) {
  switch (extended_result & 0xff) {
    case SQLITE_CANTOPEN:
      return is_forbidden(system_error) ? "; this user may not use the file: fix its permissions" : "";
    case SQLITE_INTERRUPT:
      return "; it took longer than the timeout";
    case SQLITE_BUSY:
    case SQLITE_PROTOCOL:
      return "; another process kept the database busy until the timeout";
    case SQLITE_READONLY:
      return "; the file and its folder must be writable";
    case SQLITE_FULL:
      return "; free space on the disk";
    case SQLITE_CORRUPT:
      return "; restore the file from a backup, or stop all its users and remove it with its -wal and -shm (fence "
             "counters are then lost)";
    default:
      return "";
  }
}

// Uses sqlite3_errstr: sqlite3_errmsg may repeat bound values, such as keys.
[[noreturn]] void fail(sqlite3* connection, int extended_result) {
  const int system_error = sqlite3_system_errno(connection);
  throw LockError(code_of(extended_result, system_error),
                  std::string("SQLite: ") + sqlite3_errstr(extended_result) + advice(extended_result, system_error));
}

// Pauses start at 1 ms: with shorter ones the file changes hands more often, and four processes with different keys are
// a third slower. They grow, so that hundreds of waiting processes leave the processors to the one that writes. They
// stay below 40 ms, because a stop request must end the call within 50 ms.
int busy_wait(void* keep_waiting, int times) {
  if (!(*static_cast<std::function<bool()>*>(keep_waiting))()) return 0;
  constexpr int max_pause = 40;
  const std::chrono::microseconds pause = std::chrono::milliseconds(std::clamp(times, 1, max_pause));
  std::this_thread::sleep_for(core::random_between(pause / 2, pause));
  return 1;
}

// A rollback journal beside a database can change its pages, and name another file that SQLite then deletes. SQLite
// does not check who wrote it. SyncGuard's databases have a write-ahead log and never need one, so this file system has
// none: SQLite finds no journal, opens none and creates none.
class WithoutJournals {
 public:
  // The name of this file system on top of SQLite's default one.
  static const char* name() {
    static constinit std::mutex mutex;
    // Never destroyed, because connections may be closed while the process exits. Tests change the default.
    static auto& made = *new std::map<sqlite3_vfs*, WithoutJournals>;
    const std::lock_guard lock(mutex);
    sqlite3_vfs* const base = sqlite3_vfs_find(nullptr);
    sqlite3_vfs& vfs = made.try_emplace(base, base).first->second.vfs_;
    // The one that was registered last is found first.
    sqlite3_vfs_register(&vfs, 0);
    return vfs.zName;
  }

  explicit WithoutJournals(sqlite3_vfs* base) : vfs_(*base) {
    vfs_.zName = "syncguard";
    vfs_.pAppData = base;
    vfs_.pNext = nullptr;
    vfs_.xOpen = &open;
    vfs_.xAccess = &access;
  }

 private:
  static sqlite3_vfs* base_of(sqlite3_vfs* vfs) { return static_cast<sqlite3_vfs*>(vfs->pAppData); }

  static int open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* flags_out) {
    if ((flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL)) != 0) {
      file->pMethods = nullptr;
      return SQLITE_CANTOPEN;
    }
    return base_of(vfs)->xOpen(base_of(vfs), name, file, flags, flags_out);
  }
  static int access(sqlite3_vfs* vfs, const char* name, int flags, int* result) {
    if (std::string_view(name).ends_with("-journal")) {
      *result = 0;
      return SQLITE_OK;
    }
    return base_of(vfs)->xAccess(base_of(vfs), name, flags, result);
  }

  sqlite3_vfs vfs_;
};

int is_over(void* keep_running) { return (*static_cast<std::function<bool()>*>(keep_running))() ? 0 : 1; }

}  // namespace

// ---------------------------------------------------------------------------------------------------------------------
// Query

Query::~Query() { sqlite3_reset(statement_); }

Query& Query::bind(int index, std::string_view text) {
  const int result = sqlite3_bind_text(statement_, index, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
  if (result != SQLITE_OK) fail(sqlite3_db_handle(statement_), result);
  return *this;
}

Query& Query::bind(int index, std::int64_t number) {
  const int result = sqlite3_bind_int64(statement_, index, number);
  if (result != SQLITE_OK) fail(sqlite3_db_handle(statement_), result);
  return *this;
}

bool Query::next() {
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  auto* const connection = sqlite3_db_handle(statement_);
  fail(connection, sqlite3_extended_errcode(connection));
}

std::string Query::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

std::int64_t Query::number(int column) const { return sqlite3_column_int64(statement_, column); }

// ---------------------------------------------------------------------------------------------------------------------
// Connection

Connection::Connection(const Folder& folder, Hooks hooks)
    : hooks_(std::move(hooks)),
      log_paths_{folder.database().string() + "-wal", folder.database().string() + "-shm"},
      in_use_(folder),
      connection_(nullptr, &sqlite3_close_v2) {
  sqlite3* opened = nullptr;
  constexpr int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int result = sqlite3_open_v2(folder.database().c_str(), &opened, flags, WithoutJournals::name());
  connection_.reset(opened);
  if (result != SQLITE_OK) fail(connection_.get(), result);
  sqlite3_busy_handler(connection_.get(), busy_wait, &hooks_.keep_waiting);
  harden_connection();
  prepare_file();
  // Again, because another process may have changed the files since the first check. From now on, SQLite keeps them
  // open.
  folder.expect_own_files();
  folder.expect_single_name();
  log_files_ = find_log_files();
}

Connection::~Connection() = default;

// Another program may have written or rewritten the file: it must not run code, or cost more than the deadline and a
// little memory.
void Connection::harden_connection() noexcept {
  sqlite3* const connection = connection_.get();
  constexpr int steps_between_checks = 1000;
  sqlite3_progress_handler(connection, steps_between_checks, is_over, &hooks_.keep_running);
  // A constraint or an index of the file may call functions, each of which counts as one step however long it takes. So
  // texts and programs are short, and all of them together take a moment. Ours are far shorter.
  constexpr int max_text_length = 10'000;
  constexpr int max_program_length = 2'000;
  constexpr int max_pattern_length = 100;
  sqlite3_limit(connection, SQLITE_LIMIT_LENGTH, max_text_length);
  sqlite3_limit(connection, SQLITE_LIMIT_VDBE_OP, max_program_length);
  sqlite3_limit(connection, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, max_pattern_length);
  sqlite3_limit(connection, SQLITE_LIMIT_ATTACHED, 0);
  for (const auto& [setting, value] : {std::pair{SQLITE_DBCONFIG_DEFENSIVE, 1},
                                       {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                       {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                       {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
                                       {SQLITE_DBCONFIG_ENABLE_FKEY, 0}}) {
    sqlite3_db_config(connection, setting, value, nullptr);
  }
}

void Connection::prepare_file() {
  execute("PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0");
  // Before anything is changed: is it ours, or empty? Both in one transaction, for another process may be making it.
  execute("BEGIN");
  const auto tables = pragma("SELECT count(*) FROM sqlite_schema");
  const auto owner = pragma("PRAGMA application_id");
  const auto unsafe = pragma(sql::count_unsafe.data());
  execute("COMMIT");
  if (owner != application_id && (owner != 0 || tables != 0)) {
    throw LockError(ErrorCode::invalid_argument,
                    "the file is a database of another program and was not changed: choose another path");
  }
  if (unsafe != 0) {
    throw LockError(ErrorCode::invalid_argument,
                    "the database has views, virtual tables or triggers in place of SyncGuard's tables; nothing in "
                    "it was changed. Remove them, or choose another path");
  }
  use_wal();
  // COMMIT never waits for the disk: commit_all() does, where it is necessary.
  execute("PRAGMA synchronous = NORMAL");
  const auto version = pragma("PRAGMA user_version");
  if (version == schema_version) return;
  if (version != 0) {
    throw LockError(ErrorCode::invalid_argument,
                    version > schema_version
                        ? "the file was created by a newer version of SyncGuard: upgrade this program"
                        : "the file was created by a preview of SyncGuard: remove it while no program uses it, or "
                          "choose another path");
  }
  // Unsynced: the first lock is synced, and everything before it.
  transaction(Durability::unsynced, [this] {
    execute(create_schema().c_str());
    return true;
  });
}

std::string setup_script() {
  return "-- Tables for SyncGuard, in a new file of its own. This can be run again. Afterwards, remove the rights of "
         "all\n"
         "-- other users: chmod 600 FILE\nPRAGMA journal_mode = WAL;\nBEGIN IMMEDIATE;\n" +
         create_schema() + "COMMIT;\n";
}

void Connection::complete_schema() {
  transaction(Durability::unsynced, [this] {
    execute(sql::schema.data());
    return true;
  });
}

void Connection::use_wal() {
  const auto mode_now = [this] {
    Query mode = query("PRAGMA journal_mode");
    mode.next();
    return mode.text(0);
  };
  // The first page of a new file is written without a write-ahead log.
  if (mode_now() != "wal") execute("PRAGMA journal_mode = MEMORY");
  for (int times = 0;;) {
    sqlite3_stmt* prepared = nullptr;
    const int result = sqlite3_prepare_v2(connection_.get(), "PRAGMA journal_mode = WAL", -1, &prepared, nullptr);
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, &sqlite3_finalize);
    if (result != SQLITE_OK) fail(connection_.get(), result);
    if (sqlite3_step(prepared) == SQLITE_ROW) {
      const std::string mode = reinterpret_cast<const char*>(sqlite3_column_text(prepared, 0));
      if (mode == "wal") return;
      throw LockError(ErrorCode::invalid_argument, "SQLite cannot create a write-ahead log here");
    }
    // This statement does not call the busy handler.
    const int problem = sqlite3_extended_errcode(connection_.get());
    if ((problem & 0xff) != SQLITE_BUSY || busy_wait(&hooks_.keep_waiting, times++) == 0)
      fail(connection_.get(), problem);
  }
}

// SQLite itself looks only at the database. But another process that finds no log, or a new one, does not see what this
// one writes to the old log. SQLite never removes these files while this connection is open.
bool Connection::has_moved() const noexcept {
  int moved = 0;
  sqlite3_file_control(connection_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return moved != 0 || find_log_files() != log_files_;
}

Connection::LogFiles Connection::find_log_files() const noexcept {
  LogFiles found{};
  std::ranges::transform(log_paths_, found.begin(), [](const std::string& path) -> LogFiles::value_type {
    // Not lstat, which also asks when the file was changed. Linux then records the exact time of the next change, and
    // the fsync after it writes the file's metadata, too: a third more time per operation.
    struct statx inode {};
    if (statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_INO, &inode) == 0) {
      return {makedev(inode.stx_dev_major, inode.stx_dev_minor), inode.stx_ino};
    }
    // Old sandboxes forbid statx.
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) return {};
    return {status.st_dev, status.st_ino};
  });
  return found;
}

Query Connection::query(std::string_view sql) {
  auto found = statements_.find(sql.data());
  if (found == statements_.end()) {
    sqlite3_stmt* statement = nullptr;
    const int result = sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                          SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (result != SQLITE_OK) fail(connection_.get(), result);
    found =
        statements_
            .emplace(sql.data(), std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>(statement, &sqlite3_finalize))
            .first;
  }
  return Query(found->second.get());
}

void Connection::begin() {
  if (group_ != Group::begun) {
    query("BEGIN IMMEDIATE").run();
    durability_ = Durability::unsynced;
  }
  changes_before_part_ = sqlite3_total_changes(connection_.get());
}

void Connection::sync_changes() noexcept {
  if (sqlite3_total_changes(connection_.get()) != changes_before_part_) durability_ = Durability::synced;
}

void Connection::commit() {
  if (group_ == Group::none) {
    commit_all();
  } else {
    group_ = Group::begun;
  }
}

void Connection::commit_all() {
  try {
    query("COMMIT").run();
    if (durability_ == Durability::synced) sync_log();
  } catch (const LockError& error) {
    throw error.as_in_doubt();
  }
}

// As COMMIT does with `PRAGMA synchronous = FULL`, but after other processes may write again. They may see changes that
// a crash of the host can still undo, but theirs are then undone, too, unless the log was synced up to there.
void Connection::sync_log() {
  sqlite3_file* log = nullptr;
  sqlite3_file_control(connection_.get(), "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
  const int result = log->pMethods->xSync(log, SQLITE_SYNC_NORMAL);
  if (result != SQLITE_OK) fail(connection_.get(), result);
}

void Connection::roll_back() noexcept {
  // Parts have no savepoints: they would cost more than the parts themselves and would rarely be used.
  const bool changed_nothing =
      group_ == Group::begun && sqlite3_total_changes(connection_.get()) == changes_before_part_;
  if (!changed_nothing) roll_back_all();
}

void Connection::roll_back_all() noexcept {
  // Some errors roll back by themselves.
  if (sqlite3_get_autocommit(connection_.get()) == 0) {
    sqlite3_exec(connection_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

bool Connection::group_is_lost() const noexcept {
  return group_ == Group::begun && sqlite3_get_autocommit(connection_.get()) != 0;
}

void Connection::commit_group() {
  if (std::exchange(group_, Group::none) != Group::begun) return;
  try {
    commit_all();
  } catch (...) {
    roll_back_all();
    throw;
  }
}

void Connection::abandon_group() noexcept {
  group_ = Group::none;
  roll_back_all();
}

void Connection::execute(const char* sql) {
  const int result = sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) fail(connection_.get(), result);
}

std::int64_t Connection::pragma(const char* sql) {
  sqlite3_stmt* prepared = nullptr;
  const int result = sqlite3_prepare_v2(connection_.get(), sql, -1, &prepared, nullptr);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, &sqlite3_finalize);
  if (result != SQLITE_OK) fail(connection_.get(), result);
  Query query(prepared);
  return query.next() ? query.number(0) : 0;
}

}  // namespace syncguard::sqlite
