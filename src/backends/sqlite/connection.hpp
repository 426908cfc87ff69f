// A connection to SQLite: statements, transactions, and LockError for SQLite's errors.
#pragma once

#include "backends/sqlite/file.hpp"

#include <syncguard/error.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

struct sqlite3;
struct sqlite3_stmt;

namespace syncguard::sqlite {

// A prepared statement, bound and stepped through once. The destructor resets it; bound values stay until they are
// bound again, so every use binds all parameters.
class Query {
 public:
  explicit Query(sqlite3_stmt* statement) : statement_(statement) {}
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  ~Query();

  // Parameters from ?1 on. Texts must outlive the query.
  Query& bind(int index, std::string_view text);
  Query& bind(int index, std::int64_t number);

  // Whether there is another row. Throws LockError.
  bool next();
  // For statements that return no rows.
  void run() { next(); }

  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] std::int64_t number(int column) const;

 private:
  sqlite3_stmt* statement_;
};

// Whether a transaction waits for the disk. A crash of the host (not of a process) can undo an unsynced one, unless a
// later one was synced: the write-ahead log loses only its end (docs/adr/0033-sqlite-commits-without-fsync.md).
enum class Durability { synced, unsynced };

// Returns the SQL that makes an empty file a database of locks, as opening it does.
std::string setup_script();

// Used by one thread at a time.
class Connection {
 public:
  struct Hooks {
    // Called every few milliseconds while another process writes: whether to keep waiting.
    std::function<bool()> keep_waiting;
    // Called during a long statement, which only a damaged or hostile file causes: whether to continue.
    std::function<bool()> keep_running;
    // Called when a transaction is about to write: whether its caller still waits. From then on it may take effect.
    std::function<bool()> may_write;
  };

  // Opens the file, and creates it and its tables if necessary. Throws LockError, without changing anything, for a file
  // that is not a SyncGuard database, a place where SQLite's locks do not work, or a file that the parent of a forked
  // process has open.
  Connection(const Folder& folder, Hooks hooks);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  // Returns the statement, prepared on first use. sql must be a constant: its address identifies it.
  Query query(std::string_view sql);

  // Runs a function that reads and writes between BEGIN IMMEDIATE and COMMIT. Rolls back if the function throws. Errors
  // of the COMMIT and of the disk are in doubt. Within a group, the function becomes a part of the group's transaction.
  template <typename Function>
  auto transaction(Durability durability, Function function) {
    begin();
    try {
      if (!hooks_.may_write()) throw LockError(ErrorCode::aborted, "the caller is no longer waiting");
      auto result = function();
      if (durability == Durability::synced) sync_changes();
      commit();
      return result;
    } catch (...) {
      roll_back();
      throw;
    }
  }

  // Called by the function of an unsynced transaction: if it has changed anything, the transaction waits for the disk.
  void sync_changes() noexcept;

  // Group commit: the calls of transaction() between begin_group() and commit_group() are parts of one transaction.
  // Their results must not be reported before commit_group() has returned. The first part begins the transaction, so a
  // group that only reads does not lock out other processes.
  void begin_group() noexcept { group_ = Group::waiting; }
  [[nodiscard]] bool in_group() const noexcept { return group_ != Group::none; }
  [[nodiscard]] bool group_has_begun() const noexcept { return group_ == Group::begun; }
  // Whether all parts were rolled back, because one of them failed after a change, or the disk is full.
  [[nodiscard]] bool group_is_lost() const noexcept;
  // Throws LockError, in doubt.
  void commit_group();
  void abandon_group() noexcept;

  // Runs a function that only reads between BEGIN and COMMIT, so that it sees one state of the database. In a group
  // that has begun, it sees the state of the group.
  template <typename Function>
  auto snapshot(Function function) {
    if (group_ == Group::begun) return function();
    query("BEGIN").run();
    try {
      auto result = function();
      query("COMMIT").run();
      return result;
    } catch (...) {
      roll_back();
      throw;
    }
  }

  // Whether the database or its log was removed or replaced.
  [[nodiscard]] bool has_moved() const noexcept;

  // Creates missing tables and indexes.
  void complete_schema();

 private:
  enum class Group { none, waiting, begun };
  // Device and inode of each; zero if the file is missing.
  using LogFiles = std::array<std::pair<std::uint64_t, std::uint64_t>, 2>;

  void harden_connection() noexcept;
  void prepare_file();
  void use_wal();
  void begin();
  void commit();
  void commit_all();
  void sync_log();
  void roll_back() noexcept;
  void roll_back_all() noexcept;
  void execute(const char* sql);
  std::int64_t pragma(const char* sql);
  [[nodiscard]] LogFiles find_log_files() const noexcept;

  Hooks hooks_;
  // -wal and -shm.
  const std::array<std::string, 2> log_paths_;
  LogFiles log_files_{};
  Group group_ = Group::none;
  int changes_before_part_ = 0;
  Durability durability_ = Durability::unsynced;  // of the current transaction
  FileInUse in_use_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> connection_;
  // Prepared statements, by the address of their text.
  std::unordered_map<const char*, std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>> statements_;
};

}  // namespace syncguard::sqlite
