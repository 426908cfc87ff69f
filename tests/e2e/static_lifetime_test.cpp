// Clients and leases that live until the process exits, or that are created before main, on every store.

#include "e2e/command_process.hpp"
#include "e2e/stores.hpp"

#include <syncguard/syncguard.hpp>

#if SYNCGUARD_HAS_REDIS
#include "servers/redis_server.hpp"
#endif

#include <gtest/gtest.h>

#include <map>

namespace syncguard::testing {
namespace {

// Runs static_lifetime_program.cpp.
void expect_success(const std::string& url, const std::string& name) {
  const auto outcome = CommandProcess(url, {name, "key"}, SYNCGUARD_STATIC_LIFETIME_PROGRAM).finish();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "");
}

// The name of a store, or Memory.
struct StaticLifetimeOn : ::testing::TestWithParam<std::string> {
  std::unique_ptr<StoreForCommands> store = started(GetParam());
  std::string url = store ? store->url() : "memory:locks";

  static std::unique_ptr<StoreForCommands> started(const std::string& name) {
    for (const auto& kind : store_kinds()) {
      if (kind.name == name) return kind.start();
    }
    return nullptr;
  }
  [[nodiscard]] bool is_locked() const { return store && open(url).is_locked("key"); }
};

TEST_P(StaticLifetimeOn, FunctionLocalLeaseReleasesAtExit) {
  expect_success(url, "function-local");
  EXPECT_FALSE(is_locked());
}

TEST_P(StaticLifetimeOn, GlobalLeaseReleasesAtExit) {
  expect_success(url, "global");
  EXPECT_FALSE(is_locked());
}

TEST_P(StaticLifetimeOn, GlobalLeaseReleasesAfterOpensslWasCleanedUp) {
  expect_success(url, "global-after-openssl");
  EXPECT_FALSE(is_locked());
}

TEST_P(StaticLifetimeOn, InitializerOfGlobalAcquires) {
  expect_success(url, "initializer");
  EXPECT_FALSE(is_locked());
}

TEST_P(StaticLifetimeOn, LeakedLeaseIsRenewedWhileOtherObjectsAreDestroyed) { expect_success(url, "leaked"); }

std::vector<std::string> names() {
  std::vector<std::string> all = {"Memory"};
  for (const auto& kind : store_kinds()) all.emplace_back(kind.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Stores, StaticLifetimeOn, ::testing::ValuesIn(names()),
                         [](const auto& parameter) { return parameter.param; });

TEST(StaticLifetime, DatabaseOpenedBeforeMainIsRefusedInForkedChild) {
  const TemporaryFolder folder;
  expect_success("sqlite:" + (folder.path() / "locks.db").string(), "fork-after-initializer");
}

#if SYNCGUARD_HAS_REDIS
TEST(StaticLifetime, LeaseOverTlsReleasesAtExit) {
  const RedisServer server({.tls = true});
  for (const auto* const name : {"function-local", "global", "initializer", "global-after-openssl"}) {
    expect_success(server.url(), name);
    EXPECT_FALSE(open(server.url()).is_locked("key")) << name;
  }
}
#endif

}  // namespace
}  // namespace syncguard::testing
