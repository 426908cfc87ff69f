// Holding a lock: renewal, loss, release on every way out, closing.

#include "contract/contract.hpp"
#include "contract/parts.hpp"

#include <stdexcept>

namespace syncguard::testing {

const bool parts::leases = true;

namespace {

using std::chrono::steady_clock;

TEST_P(Contract, ALeaseReleasesWhenItGoes) {
  auto locks = open_client(store());
  {
    const auto lease = locks.acquire("key");
    EXPECT_TRUE(lease);
    EXPECT_EQ(lease.key(), Key("key"));
    EXPECT_TRUE(locks.owns(lease.id()));
    EXPECT_GT(lease.remaining(), 10s);
    EXPECT_LE(lease.remaining(), 30s);
  }
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_P(Contract, AMovedLeaseIsReleasedOnceAndMoveAssignmentReleasesTheOldOne) {
  auto locks = open_client(store());
  Lease outer;
  EXPECT_FALSE(outer);
  {
    Lease inner = locks.acquire("one");
    outer = std::move(inner);
  }
  EXPECT_TRUE(locks.is_locked("one"));
  outer = locks.acquire("two");
  EXPECT_FALSE(locks.is_locked("one"));
  EXPECT_TRUE(locks.is_locked("two"));
  outer = Lease();
  EXPECT_FALSE(locks.is_locked("two"));
}

TEST_P(Contract, ReleaseSucceedsOnce) {
  auto locks = open_client(store());
  auto lease = locks.acquire("key");
  EXPECT_TRUE(lease.release());
  EXPECT_FALSE(lease);
  EXPECT_FALSE(lease.release());
  EXPECT_EQ(lease.remaining(), 0ms);
  EXPECT_FALSE(lease.extend(30s)) << "never revives";
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_P(Contract, ExtendUpdatesTheLease) {
  auto locks = open_client(store());
  auto lease = locks.acquire("key", {.ttl = 20s});
  const auto before = lease.expires_at();
  ASSERT_TRUE(lease.extend(60s));
  EXPECT_GT(lease.expires_at(), before);
  EXPECT_GT(lease.remaining(), 40s);
  ASSERT_TRUE(lease.extend(5s));
  EXPECT_LE(lease.remaining(), 5s);
}

TEST_P(Contract, ARefusedExtendLosesTheLease) {
  auto locks = open_client(store());
  auto lease = locks.acquire("key");
  Signal lost;
  const std::stop_callback on_lost(lease.lost(), [&] { lost.set(); });
  ASSERT_TRUE(locks.release(lease.id()));
  EXPECT_FALSE(lost.wait_for(20ms)) << "nobody knows yet";
  EXPECT_FALSE(lease.extend(30s));
  EXPECT_TRUE(lost.wait_for(20s));
  EXPECT_EQ(lease.remaining(), 0ms);
}

TEST_P(Contract, ALeaseIsLostBeforeTheStoreForgetsIt) {
  auto locks = open_client(store());
  EXPECT_TRUE(succeeds_once([&] {
    auto lease = locks.acquire("key", {.ttl = 150ms});
    Signal lost;
    const std::stop_callback on_lost(lease.lost(), [&] { lost.set(); });
    EXPECT_TRUE(lost.wait_for(20s));
    const bool still_locked = locks.is_locked("key");
    EXPECT_EQ(lease.remaining(), 0ms);
    EXPECT_FALSE(lease.extend(30s)) << "once lost, it stays lost";
    return still_locked;
  })) << "for the tolerance after its expiry it still is";
}

TEST_P(Contract, AutoExtendKeepsALeaseForAsLongAsItIsHeld) {
  auto locks = open_client(store());
  // Renewed after a third of it: what is left is for a busy machine.
  auto lease = locks.acquire("key", {.ttl = 4500ms, .auto_extend = true});
  const auto first_expiry = lease.expires_at();
  std::this_thread::sleep_for(5600ms);  // past the ttl and the tolerance
  EXPECT_FALSE(lease.lost().stop_requested());
  EXPECT_GT(lease.expires_at(), first_expiry + 1s);
  EXPECT_TRUE(locks.owns(lease.id()));
  EXPECT_TRUE(lease.release());
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_P(Contract, AutoExtendNoticesThatTheLockIsGone) {
  auto locks = open_client(store());
  const auto lease = locks.acquire("key", {.ttl = 9s, .auto_extend = true});
  Signal lost;
  const std::stop_callback on_lost(lease.lost(), [&] { lost.set(); });
  ASSERT_TRUE(locks.release(lease.id()));
  EXPECT_TRUE(lost.wait_for(20s));
  EXPECT_LT(store().now(), lease.expires_at()) << "at the next renewal, well before the ttl is over";
}

TEST_P(Contract, LostStaysSilentAfterReleaseAndDetach) {
  auto locks = open_client(store());
  auto released_lease = locks.acquire("one", {.ttl = 3s});
  EXPECT_TRUE(released_lease.release());
  auto detached_lease = locks.acquire("two", {.ttl = 3s, .auto_extend = true});
  (void)detached_lease.detach();
  std::this_thread::sleep_for(3250ms);
  EXPECT_FALSE(released_lease.lost().stop_requested());
  EXPECT_FALSE(detached_lease.lost().stop_requested());
}

TEST_P(Contract, ADetachedLockLivesOnAndIsNotRenewed) {
  auto locks = open_client(store());
  LockId id = LockId::generate();
  {
    auto lease = locks.acquire("key", {.ttl = 2s, .auto_extend = true});
    id = lease.detach();
  }
  EXPECT_TRUE(locks.owns(id));
  std::this_thread::sleep_for(3100ms);
  EXPECT_FALSE(locks.owns(id));
}

TEST_P(Contract, WithLockReturnsWhatTheFunctionReturnsAndReleases) {
  auto locks = open_client(store());
  const auto fence = locks.with_lock("key", {}, [&](Lease& lease) {
    EXPECT_TRUE(locks.is_locked("key"));
    return lease.fence();
  });
  EXPECT_EQ(fence, Fence(1));
  EXPECT_FALSE(locks.is_locked("key"));
  locks.with_lock("key", {}, [&] { EXPECT_TRUE(locks.is_locked("key")); });
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_P(Contract, WithLockReleasesWhenTheFunctionThrows) {
  auto locks = open_client(store());
  EXPECT_THROW(locks.with_lock("key", {}, [](Lease&) { throw std::runtime_error("mine"); }), std::runtime_error);
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_P(Contract, ASectionThatOutlivedItsLockIsReported) {
  auto locks = open_client(store());
  std::vector<std::string> reported;
  auto watched = locks.with({.on_release_error = [&](const LockError& error, const ReleaseContext& context) {
    reported.emplace_back(context.key);
    EXPECT_TRUE(LockId::is_valid(context.lock_id));
    EXPECT_EQ(std::string(error.what()).find("key"), std::string::npos);
    throw std::runtime_error("swallowed");
  }});
  watched.with_lock("key", {}, [&](Lease& lease) { EXPECT_TRUE(locks.release(lease.id())); });
  EXPECT_EQ(reported, std::vector<std::string>{"key"});
  EXPECT_THROW(watched.with_lock("key", {},
                                 [&](Lease& lease) {
                                   EXPECT_TRUE(locks.release(lease.id()));
                                   throw std::invalid_argument("the function's exception wins");
                                 }),
               std::invalid_argument);
  EXPECT_EQ(reported.size(), 2U);
  locks.with_lock("key", {}, [&](Lease& lease) { EXPECT_TRUE(locks.release(lease.id())); });
  EXPECT_EQ(reported.size(), 2U) << "only those who asked are told";
}

TEST_P(Contract, ClosingReleasesLeasesAndThenCallsThemLost) {
  auto observer = open_client(store());
  auto locks = open_client(store());
  auto lease = locks.acquire("key");
  const auto lost = lease.lost();
  locks.close();
  EXPECT_FALSE(observer.is_locked("key"));
  EXPECT_TRUE(lost.stop_requested());
  EXPECT_EQ(lease.remaining(), 0ms);
  EXPECT_FALSE(lease);
  expect_error(ErrorCode::aborted, [&] { (void)locks.try_acquire("key"); });
  EXPECT_FALSE(lease.release());
  locks.close();
}

TEST_P(Contract, DestroyingTheClientEndsWaitersAndReleasesLeases) {
  auto observer = open_client(store());
  std::optional<Locks> locks = open_client(store());
  auto lease = locks->acquire("key");
  std::vector<std::future<Lease>> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.push_back(locks->async_acquire("key", {.wait = {.timeout = 60s}}, asio::use_future));
  }
  const auto start = steady_clock::now();
  locks.reset();
  EXPECT_LT(steady_clock::now() - start, 20s) << "far below what they would have waited";
  for (auto& waiter : waiters) expect_error(ErrorCode::aborted, [&] { (void)waiter.get(); });
  EXPECT_FALSE(observer.is_locked("key"));
  EXPECT_TRUE(lease.lost().stop_requested());
}

TEST_P(Contract, EveryOperationHasAnAsynchronousTwin) {
  auto locks = open_client(store());
  asio::io_context context;
  const auto script = [&]() -> asio::awaitable<void> {
    auto lease = co_await locks.async_acquire("key", {.ttl = 20s}, asio::use_awaitable);
    EXPECT_EQ(lease.fence(), Fence(1));
    EXPECT_FALSE(co_await locks.async_try_acquire("key", {}, asio::use_awaitable));
    EXPECT_TRUE(co_await locks.async_is_locked("key", asio::use_awaitable));
    EXPECT_TRUE(co_await locks.async_owns(lease.id(), asio::use_awaitable));
    const auto by_key = co_await locks.async_lookup(Key("key"), asio::use_awaitable);
    const auto by_id = co_await locks.async_lookup(lease.id(), asio::use_awaitable);
    EXPECT_TRUE(by_key);
    EXPECT_EQ(by_key, by_id);
    EXPECT_EQ(co_await locks.async_get_by_key("key", asio::use_awaitable), by_key);
    EXPECT_EQ(co_await locks.async_get_by_id(lease.id(), asio::use_awaitable), by_key);
    const auto raw_by_key = co_await locks.async_get_by_key_raw("key", asio::use_awaitable);
    EXPECT_TRUE(raw_by_key);
    EXPECT_EQ(raw_by_key, co_await locks.async_get_by_id_raw(lease.id(), asio::use_awaitable));
    EXPECT_TRUE(co_await lease.async_extend(60s, asio::use_awaitable));
    EXPECT_GT(lease.remaining(), 40s);
    EXPECT_TRUE(co_await locks.async_extend(lease.id(), 40s, asio::use_awaitable));
    EXPECT_TRUE(co_await lease.async_release(asio::use_awaitable));
    EXPECT_FALSE(co_await locks.async_release(lease.id(), asio::use_awaitable));
    auto section = [&](Lease& held) -> asio::awaitable<std::string> {
      EXPECT_TRUE(co_await locks.async_is_locked("key", asio::use_awaitable));
      co_return held.fence().str();
    };
    EXPECT_EQ(co_await locks.async_with_lock("key", {}, section, asio::use_awaitable), "000000000000002");
    EXPECT_FALSE(co_await locks.async_is_locked("key", asio::use_awaitable));
    auto failing = [](Lease&) -> asio::awaitable<void> {
      throw std::runtime_error("mine");
      co_return;
    };
    bool thrown = false;
    try {
      co_await locks.async_with_lock("key", {}, failing, asio::use_awaitable);
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    EXPECT_TRUE(thrown);
    EXPECT_FALSE(co_await locks.async_is_locked("key", asio::use_awaitable));
    EXPECT_FALSE((co_await locks.async_diagnose(asio::use_awaitable)).empty());
    EXPECT_FALSE((co_await locks.async_setup(asio::use_awaitable)).empty());
    EXPECT_TRUE(co_await locks.async_close(asio::use_awaitable));
  };
  auto done = asio::co_spawn(context, script(), asio::use_future);
  context.run();
  done.get();
  expect_error(ErrorCode::aborted, [&] { (void)locks.is_locked("key"); });
}

TEST_P(Contract, RunsOnTheCallersExecutorWithoutAThreadOfItsOwn) {
  asio::io_context context;
  const auto script = [&]() -> asio::awaitable<void> {
    auto locks = open_on(context.get_executor(), store().make_backend({}), patient_options());
    expect_error(ErrorCode::invalid_argument, [&] { (void)locks.is_locked("key"); });
    {
      auto lease = co_await locks.async_acquire("key", {.auto_extend = true}, asio::use_awaitable);
      expect_error(ErrorCode::invalid_argument, [&] { (void)lease.extend(1s); });
    }
    // The lease released in the background; the next acquire waits for that.
    auto lease = co_await locks.async_acquire("key", {.wait = {.timeout = 20s}}, asio::use_awaitable);
    EXPECT_EQ(lease.fence(), Fence(2));
    EXPECT_TRUE(co_await lease.async_release(asio::use_awaitable));
    co_await locks.async_close(asio::use_awaitable);
  };
  auto done = asio::co_spawn(context, script(), asio::use_future);
  context.run();
  done.get();
}

}  // namespace
}  // namespace syncguard::testing
