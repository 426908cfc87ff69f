// Plain sqlite3 with the same statements and the same fsyncs as the library.

#include "backends/url.hpp"
#include "floor.hpp"
#include "sqlite_sql.hpp"

#include <sqlite3.h>

#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <variant>

namespace syncguard::bench {
namespace {

namespace sql = sqlite::sql;

class Connection {
 public:
  explicit Connection(const std::string& path) : connection_(nullptr, sqlite3_close) {
    sqlite3* opened = nullptr;
    const int result = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    connection_.reset(opened);
    if (result != SQLITE_OK) throw std::runtime_error("sqlite3 cannot open the file");
    // Retries every millisecond, as the library does.
    sqlite3_busy_handler(
        opened,
        [](void*, int) {
          sqlite3_sleep(1);
          return 1;
        },
        nullptr);
    run("PRAGMA journal_mode = WAL");
  }

  // Takes effect when it is prepared, so that no prepared statement can be kept.
  void execute(const char* text) {
    if (sqlite3_exec(connection_.get(), text, nullptr, nullptr, nullptr) != SQLITE_OK) {
      throw std::runtime_error("sqlite3 refused a statement");
    }
  }

  using Value = std::variant<std::string_view, std::int64_t>;
  // Returns whether there was a row.
  bool run(std::string_view text, std::initializer_list<Value> values = {}) {
    auto& statement = statements_[text];
    if (!statement) {
      sqlite3_stmt* prepared = nullptr;
      sqlite3_prepare_v3(connection_.get(), text.data(), static_cast<int>(text.size()), SQLITE_PREPARE_PERSISTENT,
                         &prepared, nullptr);
      statement = {prepared, sqlite3_finalize};
    }
    int index = 0;
    for (const auto& value : values) {
      ++index;
      if (const auto* words = std::get_if<std::string_view>(&value)) {
        sqlite3_bind_text(statement.get(), index, words->data(), static_cast<int>(words->size()), SQLITE_STATIC);
      } else {
        sqlite3_bind_int64(statement.get(), index, std::get<std::int64_t>(value));
      }
    }
    const int result = sqlite3_step(statement.get());
    last_number_ = result == SQLITE_ROW ? sqlite3_column_int64(statement.get(), 0) : 0;
    sqlite3_reset(statement.get());
    if (result != SQLITE_ROW && result != SQLITE_DONE) throw std::runtime_error("sqlite3 refused a statement");
    return result == SQLITE_ROW;
  }
  [[nodiscard]] std::int64_t last_number() const { return last_number_; }

 private:
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> connection_;
  std::map<std::string_view, std::shared_ptr<sqlite3_stmt>> statements_;
  std::int64_t last_number_ = 0;
};

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Floor sqlite_floor(const std::string& text) {
  BackendUrl url(text);
  const std::string path = sqlite::options_of(url).path;
  const auto make_caller = [path](const Key& key) -> std::function<void()> {
    const auto connection = std::make_shared<Connection>(path);
    return [connection, key = key.str(), fence_key = "fence:" + key.str()] {
      constexpr std::int64_t ttl = 30'000;
      const auto id = LockId::generate().str();
      connection->run(sql::find_by_key, {key});
      connection->execute("PRAGMA synchronous = FULL");
      connection->run("BEGIN IMMEDIATE");
      connection->run(sql::find_by_key, {key});
      const auto time = now();
      connection->run(sql::has_waiters, {key});
      connection->run(sql::find_counter, {fence_key});
      const auto counter = connection->last_number() + 1;
      const auto fence = Fence(static_cast<std::uint64_t>(counter)).str();
      connection->run(sql::put_counter, {fence_key, counter, key});
      connection->run(sql::put_lock, {key, id, time + ttl, time, fence, key, "bench/1"});
      connection->run("COMMIT");

      connection->execute("PRAGMA synchronous = NORMAL");
      connection->run("BEGIN IMMEDIATE");
      connection->run(sql::find_by_id, {id});
      connection->run(sql::remove_lock, {id});
      connection->run(sql::has_waiters, {key});
      connection->run("COMMIT");
    };
  };
  return {
      .name = "sqlite3, the same statements and fsyncs", .callers = {1}, .processes = {4}, .make_caller = make_caller};
}

}  // namespace syncguard::bench
