// Fairness between clients with different round-trip times.

#include "fixture.hpp"
#include "servers/counting_proxy.hpp"
#include "support/far_waiter.hpp"

namespace syncguard::testing {
namespace {

TEST(PostgresFairness, DistantWaiterGetsHalfOfItsFairShare) {
  const PostgresServer server;
  setup_postgres_schema({.connection = server.url()});
  const CountingProxy proxy(server.port(), std::chrono::milliseconds(80));
  expect_half_of_fair_share(server.url(),
                            "postgres://postgres@127.0.0.1:" + std::to_string(proxy.port()) + "/postgres");
}

}  // namespace
}  // namespace syncguard::testing
