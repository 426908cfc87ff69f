#include "servers/postgres_server.hpp"
#include "servers/shared_server.hpp"

#include <syncguard/postgres.hpp>
#include <syncguard/registry.hpp>
#include <syncguard/testing/contract_suite.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace syncguard::testing {
namespace {

// A server and a pooler: those of the ctest fixture, or, if the program is run without it, its own. All cases of one
// process use the same database. Cases that run at the same time use different ones.
class Server {
 public:
  Server() {
    if (const auto shared = find_shared_server("postgres")) {
      folder_ = shared->properties.at("folder");
      port_ = shared->properties.at("port");
      pooler_port_ = shared->properties.at("pooler_port");
      reserve_database(shared->file.string() + ".database-");
    } else {
      own_ = std::make_unique<PostgresServer>(PostgresServer::Options{.tls = true});
      own_pooler_ = std::make_unique<PgBouncer>(*own_);
      folder_ = own_->file("");
      port_ = std::to_string(own_->port());
      pooler_port_ = std::to_string(own_pooler_->port());
    }
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::string url(const std::string& options = "") const { return url_of(port_, options); }
  [[nodiscard]] std::string pooler_url(const std::string& options) const { return url_of(pooler_port_, options); }
  [[nodiscard]] std::string unix_url(const std::string& options) const {
    return "postgres:///" + database_ + "?host=" + folder_.string() + "&port=" + port_ + "&user=postgres" + options;
  }
  [[nodiscard]] std::string certificate() const { return (folder_ / "ca.crt").string(); }
  std::string execute(const std::string& sql, const std::vector<std::string>& values = {}) const {
    return execute_sql(url(), sql, values);
  }
  [[nodiscard]] const PostgresServer& own() const {
    if (!own_) throw std::logic_error("a case that pauses its server must not share it: see CMakeLists.txt");
    return *own_;
  }

 private:
  [[nodiscard]] std::string url_of(const std::string& port, const std::string& options) const {
    return "postgres://postgres@127.0.0.1:" + port + "/" + database_ + options;
  }
  // Locks the first file that no other process has locked, until this process and its children have ended.
  void reserve_database(const std::string& prefix) {
    for (int number = 0;; ++number) {
      const auto suffix = std::to_string(number);
      const int file = open((prefix + suffix).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      if (file < 0) throw std::system_error(errno, std::generic_category(), prefix + suffix);
      if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        close(file);
        continue;
      }
      const auto name = "cases_" + suffix;
      if (execute("SELECT 1 FROM pg_database WHERE datname = $1", {name}).empty()) {
        execute("CREATE DATABASE " + name + " TEMPLATE template0");
      }
      database_ = name;
      return;
    }
  }

  std::unique_ptr<PostgresServer> own_;
  std::unique_ptr<PgBouncer> own_pooler_;
  std::filesystem::path folder_;
  std::string port_;
  std::string pooler_port_;
  std::string database_ = "postgres";
};

const Server& server() {
  static const Server instance;
  return instance;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Creates its own tables, and reads and writes them directly, without the backend.
class PostgresFixture : public BackendFixture {
 public:
  explicit PostgresFixture(std::string (*url_of)(const std::string& options)) {
    static std::atomic<int> count{0};
    const auto suffix = std::to_string(getpid()) + "_" + std::to_string(++count);
    locks_ = "locks_" + suffix;
    counters_ = "counters_" + suffix;
    url_ = url_of("&table=" + locks_ + "&fence_table=" + counters_);
    setup_postgres_schema({.connection = server().url(), .table = locks_, .fence_table = counters_});
  }

  // Also drops the functions of earlier fixtures in this database, which have ended.
  static void drop_functions() {
    server().execute(
        "DO $$ DECLARE name text; BEGIN FOR name IN SELECT oid::regprocedure FROM pg_proc WHERE proname LIKE "
        "'syncguard\\_%\\_v5\\_%' LOOP EXECUTE 'DROP FUNCTION ' || name; END LOOP; END $$");
  }

  std::unique_ptr<Backend> make_backend(const Setup& setup) override {
    BackendUrl url(url_ + (setup.cleanup_in_is_locked ? "&cleanup_in_is_locked=true" : ""));
    return syncguard::make_backend(url, {.log = setup.log});
  }
  Timestamp now() override {
    return Timestamp(std::chrono::milliseconds(
        std::stoll(server().execute("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"))));
  }

  void set_fence_counter(const Key& key, std::uint64_t value) override {
    server().execute("INSERT INTO " + counters_ + " (fence_key, fence) VALUES ($1, $2) ON CONFLICT (fence_key) " +
                         "DO UPDATE SET fence = excluded.fence",
                     {"fence:" + key.str(), std::to_string(value)});
  }
  std::uint64_t fence_counter(const Key& key) override {
    const auto found =
        server().execute("SELECT fence FROM " + counters_ + " WHERE fence_key = $1", {"fence:" + key.str()});
    return found.empty() ? 0 : std::stoull(found);
  }
  void put(const LockRecord& record) override {
    server().execute("DELETE FROM " + locks_ + " WHERE key = $1", {record.key.str()});
    server().execute(
        "INSERT INTO " + locks_ + " (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) " +
            "VALUES ($1, $2, $3, $4, $5, $1)",
        {record.key.str(), record.lock_id.str(), std::to_string(record.expires_at.time_since_epoch().count()),
         std::to_string(record.acquired_at.time_since_epoch().count()), record.fence.str()});
  }
  bool is_stored(const Key& key) override {
    return !server().execute("SELECT 1 FROM " + locks_ + " WHERE key = $1", {key.str()}).empty();
  }
  std::optional<std::string> url() override { return url_; }
  // The other kinds of connections run the same statements.
  std::size_t many_locks() override { return url_.find("?application_name=") != std::string::npos ? 10'000 : 300; }
  std::shared_ptr<void> silence() override {
    server().own().pause();
    return {this, [](void*) { server().own().resume(); }};
  }
  // LISTEN does not work through a pooler in transaction mode.
  bool wakes_waiters() override { return url_.find("listen_url=off") == std::string::npos; }

 private:
  std::string locks_;
  std::string counters_;
  std::string url_;
};

SYNCGUARD_CONTRACT_SUITE(PostgresTcp, [] {
  return std::make_unique<PostgresFixture>(
      [](const std::string& options) { return server().url("?application_name=test" + options); });
});
// By a Unix socket, and without the functions, as on tables of another library that setup never saw. Listing and
// inspecting are the same statements, and plain break_lock is in key_rules_test.cpp.
class PlainFixture : public PostgresFixture {
 public:
  PlainFixture() : PostgresFixture([](const std::string& options) { return server().unix_url(options); }) {
    drop_functions();
  }

  bool wakes_waiters() override { return false; }
  bool stores_labels() override { return false; }
  bool supports_administration() override { return false; }
};
SYNCGUARD_CONTRACT_SUITE(PostgresPlain, [] { return std::make_unique<PlainFixture>(); });
SYNCGUARD_CONTRACT_SUITE(PostgresTls, [] {
  return std::make_unique<PostgresFixture>([](const std::string& options) {
    return server().url("?sslmode=verify-full&sslrootcert=" + server().certificate() + options);
  });
});
SYNCGUARD_CONTRACT_SUITE(PostgresPooled, [] {
  return std::make_unique<PostgresFixture>(
      [](const std::string& options) { return server().pooler_url("?listen_url=off" + options); });
});
// Operations use the pooler, wake-ups a direct connection.
SYNCGUARD_CONTRACT_SUITE(PostgresPooledListening, [] {
  return std::make_unique<PostgresFixture>([](const std::string& options) {
    return server().pooler_url("?listen_url=" + replaced(server().url(), ":", "%3A") + options);
  });
});

}  // namespace
}  // namespace syncguard::testing
