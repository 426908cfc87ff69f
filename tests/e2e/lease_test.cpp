// Leases when requests fail, hang or are late.

#include "e2e/faulty_client.hpp"

#include <asio/use_future.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

TEST(Lease, IsDetachedAndDestroyedWhileItsRenewalIsInFlight) {
  FaultyClient client;
  client.faults.next(Operation::extend, Fault::delay(200ms));
  {
    auto lease = client.locks.acquire("key", {.ttl = 3s, .auto_extend = true});
    ASSERT_TRUE(eventually([&] { return client.faults.calls(Operation::extend) == 1; }));
    lease.detach();
  }
  // The renewal ends after the lease. A sanitizer notices if it uses the lease.
  EXPECT_EQ(client.locks.is_locked("key"), true);
  client.locks.close();
}

// Renewed after a third of the ttl. The rest is allowance for a busy machine.
constexpr auto long_ttl = 4500ms;

TEST(Lease, SurvivesTransientRenewalFailures) {
  FaultyClient client({.log = Log([](LogLevel, std::string_view) {})});
  const auto lease = client.locks.acquire("key", {.ttl = long_ttl, .auto_extend = true});
  client.faults.next(Operation::extend, Fault::fail(ErrorCode::service_unavailable), 3);
  client.faults.next(Operation::extend, Fault::lose_reply());
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::extend, 6, 60s));
  EXPECT_FALSE(lease.lost().stop_requested());
  EXPECT_TRUE(client.locks.admin().owns(lease.id()));
}

TEST(Lease, OnExtendedReportsNewDeadline) {
  std::mutex mutex;
  std::vector<BootClock::time_point> deadlines;
  const auto reported = [&] {
    const std::lock_guard lock(mutex);
    return deadlines;
  };
  FaultyClient client({.callbacks = {.on_extended = [&](const ExtendContext& context) {
                         EXPECT_EQ(context.key, "key");
                         EXPECT_TRUE(LockId::is_valid(context.lock_id));
                         const std::lock_guard lock(mutex);
                         deadlines.push_back(context.deadline);
                       }}});
  const auto before = BootClock::now();
  auto lease = client.locks.acquire("key", {.ttl = long_ttl, .auto_extend = true});
  const auto first = lease.deadline();
  EXPECT_GE(first, before + long_ttl);
  EXPECT_LE(first, BootClock::now() + long_ttl);
  ASSERT_TRUE(eventually([&] { return !reported().empty(); })) << "a renewal must be reported";
  EXPECT_GT(reported()[0], first);
  EXPECT_TRUE(lease.extend(10min));
  const auto last = lease.deadline();
  ASSERT_TRUE(eventually([&] { return std::ranges::count(reported(), last) == 1; }))
      << "an explicit extend must be reported";
  EXPECT_GT(last, BootClock::now() + 5min);
  const auto count = reported().size();
  client.faults.always(Operation::extend, Fault::fail(ErrorCode::service_unavailable));
  EXPECT_TRUE(error_of([&] { (void)lease.extend(20min); }));
  EXPECT_EQ(lease.deadline(), last) << "an extend that certainly failed must not change the deadline";
  EXPECT_EQ(reported().size(), count);
}

TEST(Lease, DeadlineIsTimePointToSleepUntil) {
  static_assert(std::chrono::is_clock_v<BootClock>);
  FaultyClient client;
  const auto lease = client.locks.acquire("key", {.ttl = 200ms});
  const BootClock::time_point deadline = lease.deadline();
  std::this_thread::sleep_until(deadline);
  EXPECT_GE(BootClock::now(), deadline);
  EXPECT_EQ(lease.remaining(), 0ms);
}

TEST(Lease, IsLostAtDeadlineIfNoRenewalSucceeds) {
  std::vector<std::string> warnings;
  std::mutex mutex;
  FaultyClient client({.log = Log([&](LogLevel, std::string_view message) {
                         const std::lock_guard lock(mutex);
                         warnings.emplace_back(message);
                       })});
  client.faults.always(Operation::extend, Fault::fail(ErrorCode::service_unavailable));
  EXPECT_TRUE(succeeds_once([&] {
    const auto start = steady_clock::now();
    const auto lease = client.locks.acquire("key", {.ttl = 2s, .auto_extend = true});
    Signal lost;
    const std::stop_callback on_lost(lease.lost(), [&] { lost.set(); });
    EXPECT_TRUE(lost.wait_for(60s));
    EXPECT_GE(steady_clock::now() - start, 1990ms);
    return client.faults.calls(Operation::extend) >= 3U && client.locks.is_locked("key");
  })) << "the renewal must be retried, and the store must keep the lock longer than the lease";
  client.locks.close();
  const std::lock_guard lock(mutex);
  ASSERT_EQ(warnings.size(), 1U) << "warnings must be rate limited";
  EXPECT_EQ(warnings[0].find("key"), std::string::npos);
}

TEST(Lease, IsLostAtDeadlineWhileRenewalHangs) {
  FaultyClient client({.operation_timeout = 10min});
  const Gate never;
  client.faults.always(Operation::extend, Fault::hold(never));
  const auto lease = client.locks.acquire("key", {.ttl = 200ms, .auto_extend = true});
  Signal lost;
  const std::stop_callback on_lost(lease.lost(), [&] { lost.set(); });
  EXPECT_TRUE(lost.wait_for(60s)) << "the lease must not wait for the operation's timeout";
}

TEST(Lease, LostDoesNotFireOnRenewalThread) {
  FaultyClient client({.dispose_timeout = 200ms});
  const auto doomed = client.locks.acquire("doomed", {.ttl = 50ms});
  const auto renewed = client.locks.acquire("renewed", {.ttl = long_ttl, .auto_extend = true});
  Signal blocked;
  Signal unblock;
  const std::stop_callback on_lost(doomed.lost(), [&] {
    blocked.set();
    unblock.wait_for(100s);
  });
  ASSERT_TRUE(blocked.wait_for(60s));
  const auto before = client.faults.calls(Operation::extend);
  EXPECT_TRUE(client.faults.wait_for_calls(Operation::extend, before + 2, 60s)) << "renewals must continue";
  EXPECT_FALSE(renewed.lost().stop_requested());
  unblock.set();
}

TEST(Lease, BlockedLostCallbackDoesNotDelayOthers) {
  FaultyClient client;
  std::vector<Lease> leases;
  for (int i = 0; i < 4; ++i) leases.push_back(client.locks.acquire("key " + std::to_string(i), {.ttl = 50ms}));
  Signal unblock;
  const std::stop_callback blocks(leases[0].lost(), [&] { unblock.wait_for(100s); });
  EXPECT_TRUE(eventually(
      [&] { return std::ranges::all_of(leases, [](const Lease& lease) { return lease.lost().stop_requested(); }); }));
  unblock.set();
}

TEST(Lease, HungRenewalLeavesTimeForAnother) {
  FaultyClient client({.operation_timeout = 10min, .log = Log([](LogLevel, std::string_view) {})});
  const Gate never;
  client.faults.next(Operation::extend, Fault::hold(never));
  const auto lease = client.locks.acquire("key", {.ttl = long_ttl, .auto_extend = true});
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::extend, 3, 60s));
  EXPECT_FALSE(lease.lost().stop_requested())
      << "the renewal must time out before the operation timeout, which is longer than the ttl";
}

TEST(Lease, PendingExtendToShorterTtlCountsImmediately) {
  FaultyClient client({.operation_timeout = 4s});
  const Gate never;
  client.faults.next(Operation::extend, Fault::hold(never));
  auto lease = client.locks.acquire("key", {.ttl = 10min});
  Signal lost;
  const std::stop_callback on_lost(lease.lost(), [&] { lost.set(); });
  auto extending = lease.async_extend(100ms, asio::use_future);
  EXPECT_TRUE(lost.wait_for(60s));
  EXPECT_EQ(extending.wait_for(0s), std::future_status::timeout) << "lost() must not wait for the operation's timeout";
  expect_error(ErrorCode::network_timeout, [&] { (void)extending.get(); });
}

TEST(Lease, EmptyLeaseReturnsFalse) {
  Lease empty;
  EXPECT_FALSE(empty.release());
  EXPECT_FALSE(empty.extend(1s));
  EXPECT_FALSE(empty.async_release(asio::use_future).get());
  EXPECT_FALSE(empty.async_extend(1s, asio::use_future).get());
  EXPECT_EQ(empty.remaining(), 0ms);
  EXPECT_FALSE(empty.lost().stop_possible());
}

TEST(Lease, ExplicitExtendWaitsForPendingRenewal) {
  FaultyClient client;
  Gate gate;
  client.faults.next(Operation::extend, Fault::hold(gate));
  auto lease = client.locks.acquire("key", {.ttl = long_ttl, .auto_extend = true});
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::extend, 1, 60s));
  auto extending = lease.async_extend(10min, asio::use_future);
  EXPECT_EQ(extending.wait_for(50ms), std::future_status::timeout) << "a lease has at most one request in flight";
  EXPECT_EQ(client.faults.calls(Operation::extend), 1U);
  gate.open();
  EXPECT_TRUE(extending.get());
  EXPECT_GT(lease.remaining(), 5min);
}

TEST(Lease, ReleaseCancelsPendingRenewal) {
  FaultyClient client({.operation_timeout = 60s});
  const Gate never;
  client.faults.next(Operation::extend, Fault::hold(never));
  auto lease = client.locks.acquire("key", {.ttl = 12s, .auto_extend = true});
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::extend, 1, 60s));
  const auto start = steady_clock::now();
  EXPECT_TRUE(lease.release());
  EXPECT_LT(steady_clock::now() - start, 3500ms)
      << "release() must not wait for the renewal, which may take a third of the ttl";
  EXPECT_FALSE(lease.lost().stop_requested());
}

TEST(Lease, ReleaseCanBeRetriedAfterError) {
  FaultyClient client;
  auto lease = client.locks.acquire("key", {.ttl = 5s, .auto_extend = true});
  client.faults.next(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  expect_error(ErrorCode::service_unavailable, [&] { (void)lease.release(); });
  EXPECT_TRUE(lease) << "the lease must still be held";
  EXPECT_TRUE(client.store->stored("key"));
  EXPECT_TRUE(lease.release());
  EXPECT_FALSE(client.store->stored("key"));
}

TEST(Lease, ReleaseWithLostReplyCannotSucceedTwice) {
  FaultyClient client;
  auto lease = client.locks.acquire("key");
  client.faults.next(Operation::release, Fault::lose_reply());
  expect_error(ErrorCode::network_timeout, [&] { (void)lease.release(); });
  EXPECT_FALSE(lease.release()) << "the first release took effect";
}

TEST(Lease, ReleaseWithRetriesOutlastsTransientErrors) {
  FaultyClient client({.log = Log([](LogLevel, std::string_view) {})});
  auto lease = client.locks.acquire("key", {.ttl = 10min});
  client.faults.next(Operation::release, Fault::fail(ErrorCode::service_unavailable), 2);
  client.faults.next(Operation::release, Fault::lose_reply());
  EXPECT_TRUE(lease.release_with_retries()) << "the attempt whose reply was lost has released it";
  EXPECT_EQ(client.faults.calls(Operation::release), 4U);
  EXPECT_FALSE(lease);
  EXPECT_EQ(lease.lost_reason(), std::nullopt);
  EXPECT_FALSE(lease.release_with_retries()) << "there is nothing left to release";

  auto another = client.locks.acquire("key");
  client.faults.next(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  EXPECT_TRUE(another.async_release_with_retries(asio::use_future).get());
  EXPECT_FALSE(Lease().release_with_retries());
}

TEST(Lease, ReleaseWithRetriesWarnsOnce) {
  std::atomic<int> warnings = 0;
  FaultyClient client({.log = Log([&](LogLevel, std::string_view) { ++warnings; })});
  auto lease = client.locks.acquire("key");
  client.faults.next(Operation::release, Fault::fail(ErrorCode::service_unavailable), 2);
  EXPECT_TRUE(lease.release_with_retries());
  client.locks.close();
  EXPECT_EQ(warnings, 1);
}

TEST(Lease, ReleaseWithRetriesReturnsFalseIfLockWasGone) {
  FaultyClient client;
  auto lease = client.locks.acquire("key");
  EXPECT_TRUE(client.locks.release(lease.id()));
  EXPECT_FALSE(lease.release_with_retries());
  EXPECT_EQ(lease.lost_reason(), LossReason::removed);
}

TEST(Lease, ReleaseWithRetriesEndsWhenLockHasExpired) {
  FaultyClient client({.log = Log([](LogLevel, std::string_view) {})});
  auto lease = client.locks.acquire("key", {.ttl = 300ms});
  client.faults.always(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  expect_error(ErrorCode::service_unavailable, [&] { lease.release_with_retries(); });
  EXPECT_GE(client.faults.calls(Operation::release), 2U);
  EXPECT_GE(BootClock::now(), lease.deadline());
  EXPECT_FALSE(lease) << "there is nothing left to release";
}

TEST(Lease, ReleaseWithRetriesDoesNotRepeatPermanentErrors) {
  FaultyClient client;
  auto lease = client.locks.acquire("key");
  client.faults.next(Operation::release, Fault::fail(ErrorCode::auth_failed));
  expect_error(ErrorCode::auth_failed, [&] { lease.release_with_retries(); });
  EXPECT_TRUE(lease);
  EXPECT_TRUE(lease.release_with_retries());
}

TEST(Lease, StopEndsRetriesOfRelease) {
  FaultyClient client({.log = Log([](LogLevel, std::string_view) {})});
  std::stop_source stop;
  auto lease = client.locks.acquire("key");
  client.faults.always(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  std::jthread stopping([&] {
    EXPECT_TRUE(client.faults.wait_for_calls(Operation::release, 2, 60s));
    stop.request_stop();
  });
  expect_error(ErrorCode::aborted, [&] { lease.release_with_retries(stop.get_token()); });
  client.faults.clear(Operation::release);
  EXPECT_TRUE(lease.release_with_retries()) << "it can be repeated";
}

// The store cannot be reached when a section ends, and the lock expires before it can.
struct OutageAtRelease : ::testing::Test {
  std::shared_ptr<std::atomic<std::int64_t>> now = std::make_shared<std::atomic<std::int64_t>>(1'000'000);
  std::shared_ptr<MemoryStore> store =
      std::make_shared<MemoryStore>([now = now] { return Timestamp(std::chrono::milliseconds(now->load())); });
  FaultControl faults;
  Locks locks{with_faults(make_memory_backend({.store = store}), faults),
              {.dispose_timeout = 60s, .log = Log([](LogLevel, std::string_view) {})}};

  std::jthread begin(Lease& lease) {
    faults.next(Operation::extend, Fault::lose_reply());
    EXPECT_TRUE(error_of([&] { (void)lease.extend(60s); })) << "so releasing is repeated beyond the deadline";
    faults.always(Operation::release, Fault::fail(ErrorCode::service_unavailable));
    return std::jthread([this, deadline = lease.deadline()] {
      std::this_thread::sleep_until(deadline);
      *now += 120'000;
      faults.clear(Operation::release);
    });
  }
};

TEST_F(OutageAtRelease, IsNoLossToReleaseWithRetries) {
  auto lease = locks.acquire("key", {.ttl = 2s});
  const auto end = begin(lease);
  EXPECT_TRUE(lease.release_with_retries());
  EXPECT_EQ(lease.lost_reason(), std::nullopt);
}

TEST_F(OutageAtRelease, IsNoLossToSection) {
  std::jthread end;
  locks.with_lock("key", {.ttl = 2s, .auto_extend = false}, [&](Lease& lease) { end = begin(lease); });
}

TEST(Lease, AdoptedLockIsRenewed) {
  FaultyClient client;
  const auto id = client.locks.acquire("key", {.ttl = 10min}).detach();
  auto lease = client.locks.adopt(id, {.ttl = 500ms});
  ASSERT_TRUE(lease);
  EXPECT_LE(lease->remaining(), 500ms);
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::extend, 3, 60s));
  EXPECT_FALSE(lease->lost().stop_requested());
  EXPECT_TRUE(lease->release());
}

TEST(Lease, AdoptThatFailsLeavesLockToItsId) {
  FaultyClient client;
  const auto id = client.locks.acquire("key", {.ttl = 10min}).detach();
  client.faults.next(Operation::extend, Fault::lose_reply());
  const auto error = error_of([&] { (void)client.locks.adopt(id); });
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->in_doubt());
  const auto lease = client.locks.adopt(id);
  EXPECT_TRUE(lease) << "it can be repeated";
}

TEST(Lease, FailedReleaseInDestructorIsReportedAndNeverThrows) {
  std::vector<ErrorCode> reported;
  FaultyClient client({.callbacks = {.on_release_error = [&](const LockError& error, const ReleaseContext& context) {
                         EXPECT_EQ(context.key, "key");
                         reported.push_back(error.code());
                         throw std::runtime_error("swallowed");
                       }}});
  client.faults.next(Operation::release, Fault::fail(ErrorCode::auth_failed));
  { const auto lease = client.locks.acquire("key"); }
  EXPECT_EQ(reported, std::vector<ErrorCode>{ErrorCode::auth_failed});
}

TEST(Lease, DestructorNeverWaitsLongerThanDisposeTimeout) {
  std::vector<ErrorCode> reported;
  FaultyClient client({.operation_timeout = 10min,
                       .dispose_timeout = 100ms,
                       .callbacks = {.on_release_error = [&](const LockError& error, const auto&) {
                         reported.push_back(error.code());
                       }}});
  const Gate never;
  client.faults.next(Operation::release, Fault::hold(never));
  auto start = steady_clock::now();
  {
    const auto lease = client.locks.acquire("key");
    start = steady_clock::now();
  }
  EXPECT_LT(steady_clock::now() - start, 60s);
  EXPECT_EQ(reported, std::vector<ErrorCode>{ErrorCode::network_timeout});
}

TEST(Lease, InDoubtExtendKeepsEarlierDeadline) {
  FaultyClient client;
  auto lease = client.locks.acquire("key", {.ttl = 10min});
  client.faults.next(Operation::extend, Fault::lose_reply());
  expect_error(ErrorCode::network_timeout, [&] { (void)lease.extend(1min); });
  EXPECT_LE(lease.remaining(), 1min);
  client.faults.next(Operation::extend, Fault::lose_reply());
  expect_error(ErrorCode::network_timeout, [&] { (void)lease.extend(20min); });
  EXPECT_LE(lease.remaining(), 1min);
  client.faults.next(Operation::extend, Fault::fail(ErrorCode::service_unavailable));
  expect_error(ErrorCode::service_unavailable, [&] { (void)lease.extend(1ms); });
  EXPECT_GT(lease.remaining(), 1s) << "this extend certainly had no effect";
}

TEST(Lease, DeadlineCountsFromBeforeRequest) {
  FaultyClient client;
  client.faults.next(Operation::acquire, Fault::delay(200ms));
  const auto lease = client.locks.acquire("key", {.ttl = 1min});
  EXPECT_LE(lease.remaining(), 1min - 200ms);
}

TEST(Lease, DestructorOnIoThreadReleasesInBackground) {
  FaultyClient client;
  Gate gate;
  client.faults.next(Operation::release, Fault::hold(gate));
  Signal destroyed;
  client.locks.async_acquire("key", {}, [&](const std::exception_ptr& error, Lease lease) {
    EXPECT_FALSE(error);
    { const Lease gone = std::move(lease); }
    destroyed.set();
  });
  EXPECT_TRUE(destroyed.wait_for(60s)) << "the destructor must not wait for the release";
  EXPECT_TRUE(client.store->stored("key"));
  gate.open();
  EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
}

}  // namespace
}  // namespace syncguard::testing
