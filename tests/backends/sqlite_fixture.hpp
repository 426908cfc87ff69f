// What tests of the embedded backend share.
#pragma once

#include "open_patiently.hpp"
#include "temporary_folder.hpp"

#include <syncguard/sqlite.hpp>
#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

namespace syncguard::testing {

// The file as any other program of SQLite's sees it.
class Outsider {
 public:
  explicit Outsider(const std::filesystem::path& path) {
    sqlite3_open(path.c_str(), &connection_);
    sqlite3_busy_timeout(connection_, 10'000);
  }
  Outsider(const Outsider&) = delete;
  Outsider& operator=(const Outsider&) = delete;
  ~Outsider() { sqlite3_close(connection_); }

  // All values of all rows, joined by spaces.
  std::string operator()(const std::string& sql) {
    std::string text;
    const auto collect = [](void* to, int count, char** values, char**) {
      auto& all = *static_cast<std::string*>(to);
      for (int i = 0; i < count; ++i) all += (all.empty() ? "" : " ") + std::string(values[i] ? values[i] : "NULL");
      return 0;
    };
    if (sqlite3_exec(connection_, sql.c_str(), collect, &text, nullptr) != SQLITE_OK) {
      throw std::runtime_error(sqlite3_errmsg(connection_));
    }
    return text;
  }

 private:
  sqlite3* connection_ = nullptr;
};

struct Sqlite : ::testing::Test {
  TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "new" / "locks.db";

  [[nodiscard]] Locks client(ClientOptions options = {}) const {
    return Locks(make_sqlite_backend({.path = path}), patient_options(std::move(options)));
  }
};

}  // namespace syncguard::testing
