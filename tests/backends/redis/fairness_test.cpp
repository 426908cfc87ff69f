// Fairness between clients with different round-trip times.

#include "servers/counting_proxy.hpp"
#include "servers/redis_server.hpp"
#include "support/far_waiter.hpp"

namespace syncguard::testing {
namespace {

TEST(RedisFairness, DistantWaiterGetsHalfOfItsFairShare) {
  const RedisServer server;
  const CountingProxy proxy(server.port(), std::chrono::milliseconds(80));
  expect_half_of_fair_share(server.url(), server.url_at(proxy.port()));
}

}  // namespace
}  // namespace syncguard::testing
