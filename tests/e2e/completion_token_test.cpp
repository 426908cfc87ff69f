// Asynchronous calls with Asio's completion tokens, and the executors on which they complete.

#include "e2e/faulty_client.hpp"

#include <asio/co_spawn.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/deferred.hpp>
#include <asio/io_context.hpp>
#include <asio/use_future.hpp>

#include <optional>

namespace syncguard::testing {
namespace {

TEST(CompletionToken, LeaseOperationsAcceptDeferred) {
  FaultyClient client;
  asio::io_context context;
  const auto script = [&]() -> asio::awaitable<void> {
    Lease lease = co_await client.locks.async_acquire("key", {}, asio::use_awaitable);
    auto extend = lease.async_extend(60s, asio::experimental::deferred);
    auto release = lease.async_release(asio::experimental::deferred);
    EXPECT_EQ(client.faults.calls(Operation::extend), 0U) << "a deferred operation must not start before it is called";
    EXPECT_TRUE(co_await std::move(extend)(asio::use_awaitable));
    EXPECT_GT(lease.remaining(), 40s);
    EXPECT_TRUE(co_await std::move(release)(asio::use_awaitable));
    auto [error, released] = co_await lease.async_release(asio::experimental::as_tuple(asio::use_awaitable));
    EXPECT_FALSE(error);
    EXPECT_FALSE(released) << "the second release must not succeed";
    auto empty = Lease().async_release(asio::experimental::deferred);
    EXPECT_FALSE(co_await std::move(empty)(asio::use_awaitable));
  };
  auto done = asio::co_spawn(context, script(), asio::use_future);
  context.run();
  done.get();
  EXPECT_FALSE(client.store->stored("key"));
}

TEST(CompletionToken, MovedFromLeaseCompletesOnItsClientsExecutor) {
  asio::io_context context;
  auto locks = open_on(context.get_executor(), "memory:");
  Lease lease;
  locks.async_acquire("key", {}, [&](const std::exception_ptr&, Lease acquired) { lease = std::move(acquired); });
  while (!lease) context.run_one_for(60s);
  const Lease moved = std::move(lease);
  std::optional<std::thread::id> extended_on;
  std::optional<std::thread::id> released_on;
  // NOLINTNEXTLINE(bugprone-use-after-move): the test is about a moved-from lease
  lease.async_extend(1s, [&](const std::exception_ptr& error, bool extended) {
    EXPECT_FALSE(error);
    EXPECT_FALSE(extended);
    extended_on = std::this_thread::get_id();
  });
  lease.async_release([&](const std::exception_ptr& error, bool released) {
    EXPECT_FALSE(error);
    EXPECT_FALSE(released);
    released_on = std::this_thread::get_id();
  });
  EXPECT_FALSE(extended_on || released_on) << "the handlers must not run inside the initiating function";
  while (!extended_on || !released_on) ASSERT_GT(context.run_one_for(10s), 0U);
  EXPECT_EQ(extended_on, std::this_thread::get_id());
  EXPECT_EQ(released_on, std::this_thread::get_id());
}

// Without a client, only the token has an executor.
TEST(CompletionToken, EmptyLeaseCompletesOnTokensExecutor) {
  asio::io_context context;
  Lease lease;
  std::thread::id completed_on;
  lease.async_release(asio::bind_executor(context, [&](const std::exception_ptr& error, bool released) {
    EXPECT_FALSE(error || released);
    completed_on = std::this_thread::get_id();
  }));
  context.run();
  EXPECT_EQ(completed_on, std::this_thread::get_id());
  EXPECT_FALSE(lease.async_extend(1s, asio::use_future).get());
}

}  // namespace
}  // namespace syncguard::testing
