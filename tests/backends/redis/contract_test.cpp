#include "servers/redis_server.hpp"

#include <syncguard/registry.hpp>
#include <syncguard/testing/contract_suite.hpp>

#include <nlohmann/json.hpp>

#include <string>

namespace syncguard::testing {
namespace {

// Reads and writes the server's data directly, without the backend.
class RedisFixture : public BackendFixture {
 public:
  RedisFixture(RedisServer::Options options, std::string (*url_of)(const RedisServer&))
      : server_(std::move(options)), url_(url_of(server_)) {}

  std::unique_ptr<Backend> make_backend(const Setup& setup) override {
    BackendUrl url(url_ + (setup.cleanup_in_is_locked ? "&cleanup_in_is_locked=true" : ""));
    return syncguard::make_backend(url, {.log = setup.log});
  }
  Timestamp now() override {
    const auto time = server_.command({"TIME"});
    const auto line_end = time.find('\n');
    return Timestamp(std::chrono::milliseconds(std::stoll(time) * 1000 + std::stoll(time.substr(line_end + 1)) / 1000));
  }

  void set_fence_counter(const Key& key, std::uint64_t value) override {
    server_.command({"SET", fence_name(key), std::to_string(value)});
  }
  std::uint64_t fence_counter(const Key& key) override {
    const auto value = server_.command({"GET", fence_name(key)});
    return value == "(nil)" ? 0 : std::stoull(value);
  }
  void put(const LockRecord& record) override {
    const nlohmann::json document = {{"lockId", record.lock_id.str()},
                                     {"expiresAtMs", record.expires_at.time_since_epoch().count()},
                                     {"acquiredAtMs", record.acquired_at.time_since_epoch().count()},
                                     {"key", record.key.str()},
                                     {"fence", record.fence.str()}};
    server_.command({"SET", lock_name(record.key), document.dump()});
    server_.command({"SET", "syncguard:id:" + record.lock_id.str(), lock_name(record.key)});
  }
  bool is_stored(const Key& key) override { return server_.command({"EXISTS", lock_name(key)}) == "1"; }
  std::size_t many_locks() override { return url_.starts_with("redis://") ? 10'000 : 300; }
  std::optional<std::string> url() override { return url_; }
  std::shared_ptr<void> silence() override {
    server_.pause();
    return {this, [this](void*) { server_.resume(); }};
  }

 private:
  static std::string lock_name(const Key& key) { return "syncguard:" + key.str(); }
  static std::string fence_name(const Key& key) { return "syncguard:fence:" + lock_name(key); }

  RedisServer server_;
  const std::string url_;
};

template <bool tls>
std::unique_ptr<BackendFixture> make_fixture(std::string (*url_of)(const RedisServer&)) {
  return std::make_unique<RedisFixture>(RedisServer::Options{.tls = tls}, url_of);
}

SYNCGUARD_CONTRACT_SUITE(RedisTcp,
                         [] { return make_fixture<false>([](const RedisServer& server) { return server.url(); }); });
SYNCGUARD_CONTRACT_SUITE(RedisUnix, [] {
  return make_fixture<false>([](const RedisServer& server) { return server.unix_url(); });
});
SYNCGUARD_CONTRACT_SUITE(RedisTls,
                         [] { return make_fixture<true>([](const RedisServer& server) { return server.url(); }); });

}  // namespace
}  // namespace syncguard::testing
