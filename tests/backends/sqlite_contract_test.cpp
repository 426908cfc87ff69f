#include "open_patiently.hpp"
#include "temporary_folder.hpp"

#include <syncguard/sqlite.hpp>
#include <syncguard/syncguard.hpp>
#include <syncguard/testing/contract_suite.hpp>

#include <sqlite3.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncguard::testing {
namespace {

// Reaches into the file with nothing of the backend's in between.
class SqliteFixture : public BackendFixture {
 public:
  SqliteFixture() {
    // The tables have to be there before the suite reaches for them.
    auto backend = make_backend({});
    Locks locks(std::move(backend), patient_options());
    (void)locks.is_locked("any");
    locks.close();
  }

  std::unique_ptr<Backend> make_backend(const Setup& setup) override {
    return make_sqlite_backend({.path = path(), .cleanup_in_is_locked = setup.cleanup_in_is_locked}, setup.log);
  }
  Timestamp now() override { return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()); }

  void set_fence_counter(const Key& key, std::uint64_t value) override {
    execute("INSERT OR REPLACE INTO syncguard_fence_counters (fence_key, fence) VALUES (?1, ?2)",
            {"fence:" + key.str(), std::to_string(value)});
  }
  std::uint64_t fence_counter(const Key& key) override {
    const auto found =
        execute("SELECT fence FROM syncguard_fence_counters WHERE fence_key = ?1", {"fence:" + key.str()});
    return found.empty() ? 0 : std::stoull(found);
  }
  void put(const LockRecord& record) override {
    execute(
        "INSERT OR REPLACE INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) "
        "VALUES (?1, ?2, ?3, ?4, ?5, ?1)",
        {record.key.str(), record.lock_id.str(), std::to_string(record.expires_at.time_since_epoch().count()),
         std::to_string(record.acquired_at.time_since_epoch().count()), record.fence.str()});
  }
  bool is_stored(const Key& key) override {
    return !execute("SELECT 1 FROM syncguard_locks WHERE key = ?1", {key.str()}).empty();
  }
  std::optional<std::string> url() override { return "sqlite:" + path().string(); }

 private:
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "locks.db"; }

  // The first column of the first row, if there is one.
  std::string execute(const char* sql, const std::vector<std::string>& values) {
    // Opened anew each time: a connection that is open during a fork would spoil the child's.
    sqlite3* connection = nullptr;
    sqlite3_open(path().c_str(), &connection);
    sqlite3_busy_timeout(connection, 10'000);
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(connection, sql, -1, &statement, nullptr);
    for (std::size_t i = 0; i < values.size(); ++i) {
      sqlite3_bind_text(statement, static_cast<int>(i) + 1, values[i].data(), static_cast<int>(values[i].size()),
                        SQLITE_STATIC);
    }
    const int result = sqlite3_step(statement);
    std::string value;
    if (result == SQLITE_ROW) value = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    const std::string message = sqlite3_errmsg(connection);
    sqlite3_finalize(statement);
    sqlite3_close(connection);
    if (result != SQLITE_ROW && result != SQLITE_DONE) throw std::runtime_error(message);
    return value;
  }

  TemporaryFolder folder_;
};

SYNCGUARD_CONTRACT_SUITE(Sqlite, [] { return std::make_unique<SqliteFixture>(); });

}  // namespace
}  // namespace syncguard::testing
