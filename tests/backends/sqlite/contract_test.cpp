#include "support/long_timeouts.hpp"
#include "support/sqlite_client.hpp"
#include "support/temporary_folder.hpp"

#include <syncguard/sqlite.hpp>
#include <syncguard/syncguard.hpp>
#include <syncguard/testing/contract_suite.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace syncguard::testing {
namespace {

class SqliteFixture : public BackendFixture {
 public:
  SqliteFixture() {
    // Creates the tables, which the fixture uses directly.
    auto backend = make_backend({});
    Locks locks(std::move(backend), with_long_timeout());
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
  std::size_t many_locks() override { return 10'000; }
  // Another program holds the write lock of the database. Reads continue: nothing can block them.
  std::shared_ptr<void> silence() override {
    auto writer = std::make_shared<SqliteClient>(path());
    (*writer)("BEGIN IMMEDIATE");
    return writer;
  }

 private:
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "locks.db"; }

  // Opened for each call: no connection may be open during a fork.
  std::string execute(const std::string& sql, const std::vector<std::string>& values) {
    return SqliteClient{path()}(sql, values);
  }

  TemporaryFolder folder_;
};

SYNCGUARD_CONTRACT_SUITE(Sqlite, [] { return std::make_unique<SqliteFixture>(); });

}  // namespace
}  // namespace syncguard::testing
