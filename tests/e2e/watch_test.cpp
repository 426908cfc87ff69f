// Watching a key while requests fail. The contract suite covers the rest.

#include "e2e/faulty_client.hpp"
#include "support/stub_backend.hpp"

#include <functional>
#include <future>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

namespace syncguard::testing {
namespace {

TEST(Watch, ContinuesAfterTransientErrors) {
  FaultyClient client;
  client.faults.next(Operation::inspect, Fault::fail(ErrorCode::service_unavailable), 3);
  std::mutex mutex;
  std::vector<bool> states;
  const auto last_is = [&](bool locked) {
    const std::lock_guard lock(mutex);
    return !states.empty() && states.back() == locked;
  };
  std::stop_source stop;
  auto watching = std::async(std::launch::async, [&] {
    client.locks.admin().watch(
        "key", {.interval = 1ms},
        [&](const KeyState& state) {
          const std::lock_guard lock(mutex);
          states.push_back(!state.holders.empty());
        },
        stop.get_token());
  });
  EXPECT_TRUE(eventually([&] { return last_is(false); }));
  client.faults.next(Operation::inspect, Fault::fail(ErrorCode::network_timeout), 3);
  const auto lease = client.locks.acquire("key");
  EXPECT_TRUE(eventually([&] { return last_is(true); }));
  EXPECT_GE(client.faults.calls(Operation::inspect), 8U);
  stop.request_stop();
  watching.get();
}

TEST(Watch, EndsWithPermanentErrors) {
  FaultyClient client;
  client.faults.next(Operation::inspect, Fault::fail(ErrorCode::auth_failed));
  expect_error(ErrorCode::auth_failed, [&] { client.locks.admin().watch("key", {}, [](const KeyState&) {}); });
}

TEST(Watch, EndsWithErrorOfCallback) {
  FaultyClient client;
  EXPECT_THROW(client.locks.admin().watch("key", {}, [](const KeyState&) { throw std::runtime_error("enough"); }),
               std::runtime_error);
}

TEST(Watch, EndsWhenClientIsClosed) {
  FaultyClient client;
  Signal called;
  auto watching = std::async(std::launch::async, [&] {
    client.locks.admin().watch("key", {.interval = 1h}, [&](const KeyState&) { called.set(); });
  });
  EXPECT_TRUE(called.wait_for(60s));
  client.locks.close();
  expect_error(ErrorCode::aborted, [&] { watching.get(); });
}

TEST(Administration, IsRefusedByBackendsWithoutIt) {
  Locks locks(std::make_unique<StubBackend>());
  const auto message = [](const std::function<void()>& call) {
    const auto error = error_of(call);
    return error && error->code() == ErrorCode::invalid_argument ? std::string(error->what()) : std::string();
  };
  EXPECT_EQ(message([&] { (void)locks.admin().list(); }), "InvalidArgument: stub does not support listing locks");
  EXPECT_EQ(message([&] { (void)locks.admin().inspect("key"); }),
            "InvalidArgument: stub does not support inspecting keys");
  EXPECT_EQ(message([&] { (void)locks.admin().break_lock("key", Fence(1)); }),
            "InvalidArgument: stub does not support breaking locks");
  EXPECT_EQ(message([&] { (void)locks.admin().raise_fence("key", Fence(1)); }),
            "InvalidArgument: stub does not support raising fence counters");
}

}  // namespace
}  // namespace syncguard::testing
