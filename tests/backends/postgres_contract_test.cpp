#include "servers/postgres_server.hpp"

#include <syncguard/postgres.hpp>
#include <syncguard/registry.hpp>
#include <syncguard/testing/contract_suite.hpp>

#include <atomic>
#include <string>

namespace syncguard::testing {
namespace {

// One for all tests of this program: starting it takes long.
PostgresServer& server() {
  static PostgresServer instance({.tls = true});
  return instance;
}
PgBouncer& pooler() {
  static PgBouncer instance(server());
  return instance;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Tables of its own, reached with nothing of the backend's in between.
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
  // Nobody can listen through a pooler of transactions.
  bool tells_waiters() override { return url_.find("listen_url=off") == std::string::npos; }

 private:
  std::string locks_;
  std::string counters_;
  std::string url_;
};

SYNCGUARD_CONTRACT_SUITE(PostgresTcp, [] {
  return std::make_unique<PostgresFixture>(
      [](const std::string& options) { return server().url("?application_name=test" + options); });
});
SYNCGUARD_CONTRACT_SUITE(PostgresUnix, [] {
  return std::make_unique<PostgresFixture>([](const std::string& options) { return server().unix_url(options); });
});
SYNCGUARD_CONTRACT_SUITE(PostgresTls, [] {
  return std::make_unique<PostgresFixture>([](const std::string& options) {
    return server().url("?sslmode=verify-full&sslrootcert=" + server().file("ca.crt").string() + options);
  });
});
SYNCGUARD_CONTRACT_SUITE(PostgresPooled, [] {
  return std::make_unique<PostgresFixture>(
      [](const std::string& options) { return pooler().url("?prepare=false&listen_url=off" + options); });
});
// Operations through the pooler, wake-ups past it.
SYNCGUARD_CONTRACT_SUITE(PostgresPooledListening, [] {
  return std::make_unique<PostgresFixture>([](const std::string& options) {
    return pooler().url("?prepare=false&listen_url=" + replaced(server().url(), ":", "%3A") + options);
  });
});

}  // namespace
}  // namespace syncguard::testing
