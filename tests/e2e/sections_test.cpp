// with_lock() when its lock is lost before the section ends.

#include "e2e/faulty_client.hpp"

#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/use_future.hpp>

#include <stdexcept>
#include <type_traits>
#include <vector>

namespace syncguard::testing {
namespace {

struct Section : ::testing::Test {
  std::mutex mutex;
  std::vector<std::string> warnings;
  std::vector<ErrorCode> reported;
  FaultyClient client{{.dispose_timeout = 60s, .log = Log([this](LogLevel, std::string_view message) {
                                                 const std::lock_guard lock(mutex);
                                                 warnings.emplace_back(message);
                                               })}};
  Locks watched = client.locks.with({.on_release_error = [this](const LockError& error, const ReleaseContext&) {
    const std::lock_guard lock(mutex);
    reported.push_back(error.code());
  }});

  // Releases the lock by its id, as an administrator could.
  void release_by_id(const Lease& lease) { EXPECT_TRUE(client.locks.release(lease.id())); }
};

TEST_F(Section, OutlivingLockThrowsByDefault) {
  expect_error(ErrorCode::lock_lost,
               [&] { watched.with_lock("key", {}, [&](Lease& lease) { release_by_id(lease); }); });
  expect_error(ErrorCode::lock_lost, [&] {
    (void)watched.with_lock("key", {}, [&](Lease& lease) {
      release_by_id(lease);
      return 7;
    });
  });
  EXPECT_EQ(reported, (std::vector<ErrorCode>{ErrorCode::lock_lost, ErrorCode::lock_lost}));
}

TEST_F(Section, OutlivingLockIsOnlyReportedIfRequested) {
  const auto outlive = [&](Lease& lease) {
    release_by_id(lease);
    return 7;
  };
  EXPECT_EQ(watched.with_lock("key", {.if_lost = IfLost::report}, outlive), 7);
  EXPECT_EQ(reported, std::vector<ErrorCode>{ErrorCode::lock_lost});
  EXPECT_TRUE(warnings.empty()) << "the callback replaces the warning";

  EXPECT_EQ(client.locks.with_lock("key", {.if_lost = IfLost::report}, outlive), 7);
  client.locks.close();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], ::testing::HasSubstr("LockLost"));
  EXPECT_EQ(warnings[0].find("key"), std::string::npos);
}

TEST_F(Section, KeepsItsOwnException) {
  EXPECT_THROW(watched.with_lock("key", {},
                                 [&](Lease& lease) {
                                   release_by_id(lease);
                                   throw std::invalid_argument("mine");
                                 }),
               std::invalid_argument);
  EXPECT_EQ(reported, std::vector<ErrorCode>{ErrorCode::lock_lost});
}

TEST_F(Section, ReturnsNormallyIfLockWasHeldToTheEnd) {
  EXPECT_EQ(watched.with_lock("key", {}, [] { return 7; }), 7);
  watched.with_lock("key", {}, [](Lease& lease) { EXPECT_TRUE(lease.release()); });
  watched.with_lock("key", {}, [](Lease& lease) { (void)lease.detach(); });
  EXPECT_TRUE(reported.empty());
}

TEST_F(Section, ThrowsIfClientWasClosed) {
  expect_error(ErrorCode::lock_lost, [&] { watched.with_lock("key", {}, [&] { client.locks.close(); }); });
  EXPECT_EQ(reported, std::vector<ErrorCode>{ErrorCode::lock_lost});
}

TEST_F(Section, ThrowsIfLockWasLostWithStoreUnreachable) {
  FaultyClient away({.dispose_timeout = 50ms, .log = Log([](LogLevel, std::string_view) {})});
  expect_error(ErrorCode::lock_lost, [&] {
    away.locks.with_lock("key", {.ttl = 100ms, .auto_extend = false}, [&](Lease& lease) {
      away.faults.always(Operation::release, Fault::fail(ErrorCode::service_unavailable));
      EXPECT_TRUE(eventually([&] { return lease.lost().stop_requested(); }));
    });
  });
}

TEST_F(Section, AsyncThrowsUnlessToldOtherwise) {
  const auto section = [&](Lease& lease) -> asio::awaitable<int> {
    co_await client.locks.async_release(lease.id(), asio::use_awaitable);
    co_return 7;
  };
  EXPECT_EQ(watched.async_with_lock("key", {.if_lost = IfLost::report}, section, asio::use_future).get(), 7);
  auto failing = watched.async_with_lock("key", {}, section, asio::use_future);
  expect_error(ErrorCode::lock_lost, [&] { (void)failing.get(); });
  client.locks.close();
  EXPECT_EQ(reported, (std::vector<ErrorCode>{ErrorCode::lock_lost, ErrorCode::lock_lost}));
}

TEST_F(Section, IsRenewedByDefault) {
  client.locks.with_lock("key", {.ttl = 100ms}, [&](Lease& lease) {
    EXPECT_TRUE(client.faults.wait_for_calls(Operation::extend, 3, 60s));
    EXPECT_FALSE(lease.lost().stop_requested());
  });
}

// The store may have kept the lock for its tolerance, but the function had to stop.
TEST_F(Section, ThrowsIfLostFiredEvenIfReleaseSucceeds) {
  const auto outlive = [](Lease& lease) {
    EXPECT_TRUE(eventually([&] { return lease.lost().stop_requested(); }));
    EXPECT_EQ(lease.lost_reason(), LossReason::expired);
  };
  const SectionOptions brief{.ttl = 50ms, .auto_extend = false};
  expect_error(ErrorCode::lock_lost, [&] { watched.with_lock("key", brief, outlive); });
  EXPECT_EQ(client.faults.calls(Operation::extend), 0U);
  EXPECT_EQ(reported, std::vector<ErrorCode>{ErrorCode::lock_lost}) << "reported once";

  const auto throwing = [&](Lease& lease) {
    outlive(lease);
    throw std::invalid_argument("mine");
  };
  EXPECT_THROW(watched.with_lock("key", brief, throwing), std::invalid_argument);
  EXPECT_EQ(reported, (std::vector<ErrorCode>{ErrorCode::lock_lost, ErrorCode::lock_lost}));

  const auto section = [&](Lease& lease) -> asio::awaitable<void> {
    outlive(lease);
    co_return;
  };
  std::thread waiting([&] {
    asio::io_context context;
    auto done =
        asio::co_spawn(context, watched.async_with_lock("key", brief, section, asio::use_awaitable), asio::use_future);
    context.run();
    expect_error(ErrorCode::lock_lost, [&] { done.get(); });
  });
  waiting.join();
  client.locks.close();
  EXPECT_EQ(reported.size(), 3U);
}

TEST_F(Section, IsNotRenewedBeyondMaxHold) {
  expect_error(ErrorCode::lock_lost, [&] {
    client.locks.with_lock("key", {.ttl = 300ms, .max_hold = 700ms}, [](Lease& lease) {
      EXPECT_TRUE(eventually([&] { return lease.lost().stop_requested(); }));
      EXPECT_EQ(lease.lost_reason(), LossReason::max_hold);
    });
  });
  EXPECT_GE(client.faults.calls(Operation::extend), 1U);
}

TEST_F(Section, ReturnsReferences) {
  static int value = 1;
  const auto function = []() -> int& { return value; };
  static_assert(std::is_same_v<decltype(client.locks.with_lock("key", {}, function)), int&>);
  static_assert(std::is_same_v<decltype(client.locks.with_lock("key", {}, [] { return 1; })), int>);
  client.locks.with_lock("key", {}, function) = 2;
  EXPECT_EQ(value, 2);
}

}  // namespace
}  // namespace syncguard::testing
