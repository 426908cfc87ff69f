// Leases: renewal, loss, release in every exit path, closing the client.

#include "contract/contract.hpp"
#include "contract/parts.hpp"
#include "support/is_granted.hpp"

#include <stdexcept>

namespace syncguard::testing {

const bool parts::leases = true;

namespace {

using std::chrono::steady_clock;

TEST_P(Contract, LeaseDestructorReleases) {
  auto locks = open_client(store());
  {
    const auto lease = locks.acquire("key");
    EXPECT_TRUE(lease);
    EXPECT_EQ(lease.key(), Key("key"));
    EXPECT_TRUE(locks.admin().owns(lease.id()));
    EXPECT_GT(lease.remaining(), 10s);
    EXPECT_LE(lease.remaining(), 30s);
  }
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_P(Contract, MovedLeaseIsReleasedOnceAndMoveAssignmentReleasesOldOne) {
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
  EXPECT_FALSE(lease.extend(30s)) << "a released lease stays released";
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_P(Contract, ExtendUpdatesLease) {
  auto locks = open_client(store());
  auto lease = locks.acquire("key", {.ttl = 20s});
  const auto before = lease.expires_at();
  ASSERT_TRUE(lease.extend(60s));
  EXPECT_GT(lease.expires_at(), before);
  EXPECT_GT(lease.remaining(), 40s);
  ASSERT_TRUE(lease.extend(5s));
  EXPECT_LE(lease.remaining(), 5s);
}

TEST_P(Contract, RejectedExtendLosesLease) {
  auto locks = open_client(store());
  auto lease = locks.acquire("key");
  Signal lost;
  const std::stop_callback on_lost(lease.lost(), [&] { lost.set(); });
  ASSERT_TRUE(locks.release(lease.id()));
  EXPECT_FALSE(lost.wait_for(20ms)) << "the lease cannot know yet that its lock was released by id";
  EXPECT_FALSE(lease.extend(30s));
  EXPECT_TRUE(lost.wait_for(20s));
  EXPECT_EQ(lease.remaining(), 0ms);
}

TEST_P(Contract, LeaseIsLostBeforeItsLockExpires) {
  auto locks = open_client(store());
  EXPECT_TRUE(succeeds_once([&] {
    auto lease = locks.acquire("key", {.ttl = 150ms});
    Signal lost;
    const std::stop_callback on_lost(lease.lost(), [&] { lost.set(); });
    EXPECT_TRUE(lost.wait_for(20s));
    const bool still_locked = locks.is_locked("key");
    EXPECT_EQ(lease.remaining(), 0ms);
    EXPECT_FALSE(lease.extend(30s)) << "a lost lease stays lost";
    return still_locked;
  })) << "the store must keep the lock for the tolerance after the ttl";
}

TEST_P(Contract, AutoExtendKeepsLeaseAlive) {
  auto locks = open_client(store());
  // Renewed after a third of the ttl. The rest is allowance for a busy machine.
  auto lease = locks.acquire("key", {.ttl = 4500ms, .auto_extend = true});
  const auto first_expiry = lease.expires_at();
  std::this_thread::sleep_for(5600ms);  // past the ttl and the tolerance
  EXPECT_FALSE(lease.lost().stop_requested());
  EXPECT_GT(lease.expires_at(), first_expiry + 1s);
  EXPECT_TRUE(locks.admin().owns(lease.id()));
  EXPECT_TRUE(lease.release());
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_P(Contract, AutoExtendDetectsLostLock) {
  auto locks = open_client(store());
  const auto lease = locks.acquire("key", {.ttl = 9s, .auto_extend = true});
  Signal lost;
  const std::stop_callback on_lost(lease.lost(), [&] { lost.set(); });
  ASSERT_TRUE(locks.release(lease.id()));
  EXPECT_TRUE(lost.wait_for(20s));
  EXPECT_LT(store().now(), lease.expires_at()) << "the next renewal must detect the loss, before the ttl ends";
}

TEST_P(Contract, LostDoesNotFireAfterReleaseOrDetach) {
  auto locks = open_client(store());
  auto released_lease = locks.acquire("one", {.ttl = 3s});
  EXPECT_TRUE(released_lease.release());
  auto detached_lease = locks.acquire("two", {.ttl = 3s, .auto_extend = true});
  (void)detached_lease.detach();
  std::this_thread::sleep_for(3250ms);
  EXPECT_FALSE(released_lease.lost().stop_requested());
  EXPECT_FALSE(detached_lease.lost().stop_requested());
}

TEST_P(Contract, DetachedLockStaysHeldAndIsNotRenewed) {
  auto locks = open_client(store());
  LockId id = LockId::generate();
  {
    auto lease = locks.acquire("key", {.ttl = 2s, .auto_extend = true});
    id = lease.detach();
  }
  EXPECT_TRUE(locks.admin().owns(id));
  std::this_thread::sleep_for(3100ms);
  EXPECT_FALSE(locks.admin().owns(id));
}

TEST_P(Contract, DetachedLockIsAdoptedByAnotherClient) {
  auto first = open_client(store());
  auto second = open_client(store());
  auto lease = first.acquire("key", {.ttl = 30s});
  const auto fence = lease.fence();
  const auto id = lease.detach();
  auto adopted = second.adopt(id, {.ttl = 60s});
  ASSERT_TRUE(adopted);
  EXPECT_EQ(adopted->key(), Key("key"));
  EXPECT_EQ(adopted->id(), id);
  EXPECT_EQ(adopted->fence(), fence);
  EXPECT_GT(adopted->remaining(), 40s);
  EXPECT_FALSE(is_granted(first.try_acquire("key")));
  EXPECT_TRUE(adopted->release());
  EXPECT_FALSE(first.is_locked("key"));
}

TEST_P(Contract, AdoptNeedsALiveLock) {
  auto locks = open_client(store());
  EXPECT_FALSE(is_granted(locks.adopt(LockId::generate())));
  const auto id = locks.acquire("key").detach();
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.adopt(id, {.ttl = 0ms}); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.adopt(id, {.max_hold = 0ms}); });
  EXPECT_TRUE(locks.release(id));
  EXPECT_FALSE(is_granted(locks.adopt(id)));
  auto other = locks.acquire("key");
  EXPECT_FALSE(is_granted(locks.async_adopt(id, {}, asio::use_future).get()));
}

TEST_P(Contract, LeaseSaysWhyItWasLost) {
  auto locks = open_client(store());
  auto other = open_client(store());
  auto released = locks.acquire("released");
  EXPECT_EQ(released.lost_reason(), std::nullopt);
  EXPECT_TRUE(released.release());
  EXPECT_EQ(released.lost_reason(), std::nullopt);

  auto removed = locks.acquire("removed");
  EXPECT_TRUE(other.release(removed.id()));
  EXPECT_FALSE(removed.extend(30s));
  EXPECT_EQ(removed.lost_reason(), LossReason::removed);

  const auto expired = locks.acquire("expired", {.ttl = 50ms});
  EXPECT_TRUE(eventually([&] { return expired.lost().stop_requested(); }));
  EXPECT_EQ(expired.lost_reason(), LossReason::expired);

  const auto closed = locks.acquire("closed");
  locks.close();
  EXPECT_EQ(closed.lost_reason(), LossReason::client_closed);
}

TEST_P(Contract, WithLockReturnsResultAndReleases) {
  auto locks = open_client(store());
  const auto fence = locks.with_lock("key", {}, [&](Lease& lease) {
    EXPECT_TRUE(locks.is_locked("key"));
    return lease.fence();
  });
  EXPECT_EQ(fence, Fence(store().fence_counter("key")));
  EXPECT_FALSE(locks.is_locked("key"));
  locks.with_lock("key", {}, [&] { EXPECT_TRUE(locks.is_locked("key")); });
  int value = 1;
  decltype(auto) reference = locks.with_lock("key", {}, [&]() -> int& { return value; });
  static_assert(std::is_same_v<decltype(reference), int&>);
  EXPECT_EQ(&reference, &value);
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_P(Contract, WithLockReleasesIfFunctionThrows) {
  auto locks = open_client(store());
  EXPECT_THROW(locks.with_lock("key", {}, [](Lease&) { throw std::runtime_error("mine"); }), std::runtime_error);
  EXPECT_FALSE(locks.is_locked("key"));
}

TEST_P(Contract, SectionThatOutlivesItsLockIsReported) {
  auto locks = open_client(store());
  std::vector<std::string> reported;
  auto watched = locks.with({.on_release_error = [&](const LockError& error, const ReleaseContext& context) {
    reported.emplace_back(context.key);
    EXPECT_EQ(error.code(), ErrorCode::lock_lost);
    EXPECT_TRUE(LockId::is_valid(context.lock_id));
    EXPECT_EQ(std::string(error.what()).find("key"), std::string::npos);
    throw std::runtime_error("swallowed");
  }});
  const SectionOptions report{.if_lost = IfLost::report};
  watched.with_lock("key", report, [&](Lease& lease) { EXPECT_TRUE(locks.release(lease.id())); });
  EXPECT_EQ(reported, std::vector<std::string>{"key"});
  EXPECT_THROW(watched.with_lock("key", {},
                                 [&](Lease& lease) {
                                   EXPECT_TRUE(locks.release(lease.id()));
                                   throw std::invalid_argument("the function's exception wins");
                                 }),
               std::invalid_argument);
  EXPECT_EQ(reported.size(), 2U);
  locks.with_lock("key", report, [&](Lease& lease) { EXPECT_TRUE(locks.release(lease.id())); });
  EXPECT_EQ(reported.size(), 2U) << "a client without on_release_error reports nothing";
  expect_error(ErrorCode::lock_lost,
               [&] { watched.with_lock("key", {}, [&](Lease& lease) { EXPECT_TRUE(locks.release(lease.id())); }); });
  EXPECT_EQ(reported.size(), 3U);
}

TEST_P(Contract, CloseFiresLostAndReleasesLeases) {
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

TEST_P(Contract, LeaseKeepsItsClientOpen) {
  auto observer = open_client(store());
  if (auto lease = open_client(store()).try_acquire("key")) {
    EXPECT_TRUE(observer.is_locked("key"));
    EXPECT_FALSE(lease->lost().stop_requested());
    EXPECT_TRUE(lease->extend(20s));
  } else {
    ADD_FAILURE() << "the key is free, but was not acquired";
  }
  EXPECT_FALSE(observer.is_locked("key"));
}

TEST_P(Contract, CloseEndsWaitsAndReleasesLeases) {
  auto observer = open_client(store());
  auto locks = open_client(store());
  auto lease = locks.acquire("key");
  std::vector<std::future<Lease>> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.push_back(locks.async_acquire("key", {.wait = {.timeout = 60s}}, asio::use_future));
  }
  const auto start = steady_clock::now();
  locks.close();
  EXPECT_LT(steady_clock::now() - start, 20s) << "close() must not wait for the waiters' timeout of 60 s";
  for (auto& waiter : waiters) expect_error(ErrorCode::aborted, [&] { (void)waiter.get(); });
  EXPECT_FALSE(observer.is_locked("key"));
  EXPECT_TRUE(lease.lost().stop_requested());
}

TEST_P(Contract, EveryOperationHasAsyncCounterpart) {
  auto locks = open_client(store());
  asio::io_context context;
  const auto script = [&]() -> asio::awaitable<void> {
    auto lease = co_await locks.async_acquire("key", {.ttl = 20s}, asio::use_awaitable);
    EXPECT_GT(lease.fence(), Fence());
    EXPECT_FALSE(is_granted(co_await locks.async_try_acquire("key", {}, asio::use_awaitable)));
    EXPECT_TRUE(co_await locks.async_is_locked("key", asio::use_awaitable));
    EXPECT_TRUE(co_await locks.admin().async_owns(lease.id(), asio::use_awaitable));
    const auto by_key = co_await locks.async_lookup(Key("key"), asio::use_awaitable);
    const auto by_id = co_await locks.async_lookup(lease.id(), asio::use_awaitable);
    EXPECT_TRUE(by_key);
    EXPECT_EQ(by_key, by_id);
    EXPECT_EQ(co_await locks.admin().async_get_by_key("key", asio::use_awaitable), by_key);
    EXPECT_EQ(co_await locks.admin().async_get_by_id(lease.id(), asio::use_awaitable), by_key);
    const auto raw_by_key = co_await locks.admin().async_get_by_key_raw("key", asio::use_awaitable);
    EXPECT_TRUE(raw_by_key);
    EXPECT_EQ(raw_by_key, co_await locks.admin().async_get_by_id_raw(lease.id(), asio::use_awaitable));
    EXPECT_TRUE(co_await lease.async_extend(60s, asio::use_awaitable));
    EXPECT_GT(lease.remaining(), 40s);
    EXPECT_TRUE(co_await locks.async_extend(lease.id(), 40s, asio::use_awaitable));
    EXPECT_TRUE(co_await lease.async_release(asio::use_awaitable));
    EXPECT_FALSE(co_await locks.async_release(lease.id(), asio::use_awaitable));
    auto section = [&](Lease& held) -> asio::awaitable<std::string> {
      EXPECT_TRUE(co_await locks.async_is_locked("key", asio::use_awaitable));
      co_return held.fence().str();
    };
    EXPECT_GT(co_await locks.async_with_lock("key", {}, section, asio::use_awaitable), lease.fence().str());
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
    EXPECT_FALSE((co_await locks.admin().async_diagnose(asio::use_awaitable)).empty());
    EXPECT_FALSE((co_await locks.admin().async_setup(asio::use_awaitable)).empty());
    EXPECT_TRUE(co_await locks.async_close(asio::use_awaitable));
  };
  auto done = asio::co_spawn(context, script(), asio::use_future);
  context.run();
  done.get();
  expect_error(ErrorCode::aborted, [&] { (void)locks.is_locked("key"); });
}

TEST_P(Contract, RunsOnCallersExecutorWithoutOwnThread) {
  asio::io_context context;
  const auto script = [&]() -> asio::awaitable<void> {
    auto locks = open_on(context.get_executor(), store().make_backend({}), with_long_timeout());
    expect_error(ErrorCode::invalid_argument, [&] { (void)locks.is_locked("key"); });
    Fence first;
    {
      auto lease = co_await locks.async_acquire("key", {.auto_extend = true}, asio::use_awaitable);
      expect_error(ErrorCode::invalid_argument, [&] { (void)lease.extend(1s); });
      first = lease.fence();
    }
    // The destructor of the lease releases in the background; the next acquire waits for that.
    auto lease = co_await locks.async_acquire("key", {.wait = {.timeout = 20s}}, asio::use_awaitable);
    EXPECT_GT(lease.fence(), first);
    EXPECT_TRUE(co_await lease.async_release(asio::use_awaitable));
    co_await locks.async_close(asio::use_awaitable);
  };
  auto done = asio::co_spawn(context, script(), asio::use_future);
  context.run();
  done.get();
}

}  // namespace
}  // namespace syncguard::testing
