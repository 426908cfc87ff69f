// SQLite, as far as this backend needs it: connections, statements, transactions, and errors that are LockErrors.
#pragma once

#include "backends/sqlite/file.hpp"

#include <syncguard/error.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

struct sqlite3;
struct sqlite3_stmt;

namespace syncguard::sqlite {

// A prepared statement, bound and stepped through once. Resets itself when it goes; what was bound stays until it is
// bound anew, so that every use binds all of its parameters.
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

// One connection. One thread at a time.
class Database {
 public:
  struct Hooks {
    // Asked about every millisecond while another process writes: whether to go on waiting.
    std::function<bool()> keep_waiting;
    // Asked once a transaction may write: whether it is still wanted. From a yes on, it may take effect.
    std::function<bool()> may_write;
  };

  // Opens the file, making it and its tables if there is none yet. Throws LockError, having harmed nothing, for a file
  // that is no database of ours, a place where SQLite's locks do not hold, or a file that the parent of a forked
  // process has open.
  Database(const std::filesystem::path& path, Hooks hooks);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  // The statement, prepared on first use. sql must be a constant of the program.
  Query query(std::string_view sql);

  // BEGIN IMMEDIATE … COMMIT around a function that reads and writes; rolled back if it throws. Errors of the COMMIT
  // itself are in doubt.
  template <typename Function>
  auto transaction(Function function) {
    begin();
    try {
      if (!hooks_.may_write()) throw LockError(ErrorCode::aborted, "nobody waits for it any more");
      auto result = function();
      commit();
      return result;
    } catch (...) {
      roll_back();
      throw;
    }
  }

  [[nodiscard]] bool has_moved() noexcept;

  // Makes the tables and indexes that are not there.
  void complete_schema();

 private:
  void prepare_file();
  void use_wal();
  void begin();
  void commit();
  void roll_back() noexcept;
  void execute(const char* sql);
  std::int64_t pragma(const char* sql);

  Hooks hooks_;
  FileInUse in_use_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> connection_;
  // By the address of their text.
  std::unordered_map<const char*, std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>> statements_;
};

}  // namespace syncguard::sqlite
