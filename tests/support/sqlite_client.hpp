// A plain SQLite connection that uses no code of the backend.
#pragma once

#include <sqlite3.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncguard::testing {

// Sees the file as any other SQLite program does. Must not be open during a fork: SQLite then fails in the child.
class SqliteClient {
 public:
  explicit SqliteClient(const std::filesystem::path& path) {
    sqlite3_open(path.c_str(), &connection_);
    sqlite3_busy_timeout(connection_, 10'000);
  }
  SqliteClient(const SqliteClient&) = delete;
  SqliteClient& operator=(const SqliteClient&) = delete;
  ~SqliteClient() { sqlite3_close(connection_); }

  // Returns all values of all rows of all statements, joined by spaces. The parameters ?1, ?2, ... get the given
  // values.
  std::string operator()(const std::string& sql, const std::vector<std::string>& values = {}) {
    std::string text;
    for (const char* rest = sql.c_str(); *rest != '\0';) {
      sqlite3_stmt* prepared = nullptr;
      expect(sqlite3_prepare_v2(connection_, rest, -1, &prepared, &rest) == SQLITE_OK);
      if (prepared == nullptr) break;  // only white space is left
      const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, sqlite3_finalize);
      for (std::size_t i = 0; i < values.size(); ++i) {
        sqlite3_bind_text(prepared, static_cast<int>(i) + 1, values[i].data(), static_cast<int>(values[i].size()),
                          SQLITE_STATIC);
      }
      int result = SQLITE_DONE;
      while ((result = sqlite3_step(prepared)) == SQLITE_ROW) {
        for (int column = 0; column < sqlite3_column_count(prepared); ++column) {
          const auto* value = reinterpret_cast<const char*>(sqlite3_column_text(prepared, column));
          text += (text.empty() ? "" : " ") + std::string(value != nullptr ? value : "NULL");
        }
      }
      expect(result == SQLITE_DONE);
    }
    return text;
  }

 private:
  void expect(bool success) const {
    if (!success) throw std::runtime_error(sqlite3_errmsg(connection_));
  }

  sqlite3* connection_ = nullptr;
};

}  // namespace syncguard::testing
