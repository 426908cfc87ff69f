// How long a client stays open, and how destructors of leases release.

#include "e2e/faulty_client.hpp"

#include <syncguard/forwarding_backend.hpp>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>

#include <atomic>
#include <future>
#include <optional>
#include <vector>

namespace syncguard::testing {
namespace {

Log silent() {
  return Log([](LogLevel, std::string_view) {});
}

// Sets a signal when the client has closed its backend.
class CloseReported : public ForwardingBackend {
 public:
  CloseReported(std::shared_ptr<MemoryStore> store, std::shared_ptr<Signal> closed)
      : ForwardingBackend(make_memory_backend({.store = std::move(store)})), closed_(std::move(closed)) {}

  asio::awaitable<void> close(const CallLimits& limits) override {
    co_await inner().close(limits);
    closed_->set();
  }

 private:
  const std::shared_ptr<Signal> closed_;
};

struct ClientLifetime : ::testing::Test {
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  std::shared_ptr<Signal> closed = std::make_shared<Signal>();

  [[nodiscard]] Locks open_client(ClientOptions options = {}) const {
    return Locks(std::make_unique<CloseReported>(store, closed), std::move(options));
  }
  [[nodiscard]] bool is_open() const { return !closed->wait_for(20ms); }
  [[nodiscard]] bool closes() const { return closed->wait_for(60s); }
};

TEST_F(ClientLifetime, LeaseOfTemporaryClientHolds) {
  if (auto lease = open_client().try_acquire("key", {.ttl = 1min})) {
    EXPECT_TRUE(store->stored("key"));
    EXPECT_TRUE(*lease);
    EXPECT_FALSE(lease->lost().stop_requested());
    EXPECT_TRUE(is_open());
    EXPECT_TRUE(lease->extend(2min));
  } else {
    FAIL() << "the key is free, but was not acquired";
  }
  EXPECT_FALSE(store->stored("key"));
  EXPECT_TRUE(closed->wait_for(0s)) << "the destructor of the lease must wait until the client is closed";
}

TEST_F(ClientLifetime, LeaseOfTemporaryClientIsRenewed) {
  const Lease lease = open_client().acquire("key", {.ttl = 3s, .auto_extend = true});
  const auto before = lease.deadline();
  EXPECT_TRUE(eventually([&] { return lease.deadline() > before; }));
  EXPECT_FALSE(lease.lost().stop_requested());
}

TEST_F(ClientLifetime, ReleasedLeaseDoesNotKeepItsClientOpen) {
  auto lease = open_client().acquire("key");
  EXPECT_TRUE(lease.release());
  EXPECT_TRUE(closed->wait_for(0s)) << "release() must wait until the client is closed";
  EXPECT_FALSE(lease.release());
}

TEST_F(ClientLifetime, LeaseReleasedAsynchronouslyDoesNotKeepItsClientOpen) {
  auto lease = open_client().acquire("key");
  EXPECT_TRUE(lease.async_release(asio::use_future).get());
  EXPECT_TRUE(closes());
}

TEST_F(ClientLifetime, DetachedLeaseDoesNotKeepItsClientOpen) {
  auto lease = open_client().acquire("key");
  (void)lease.detach();
  EXPECT_TRUE(closes());
  EXPECT_TRUE(store->stored("key"));
}

TEST_F(ClientLifetime, LostLeaseDoesNotKeepItsClientOpen) {
  auto lease = open_client().acquire("key", {.ttl = 50ms});
  EXPECT_TRUE(closes());
  EXPECT_TRUE(lease.lost().stop_requested());
  EXPECT_FALSE(lease.extend(1s))
      << "false, not an error: the lock is no longer held, and the caller did not close the client";
  EXPECT_FALSE(lease.release());
}

TEST_F(ClientLifetime, LeaseWhoseExtendWasRefusedDoesNotKeepItsClientOpen) {
  Locks other(make_memory_backend({.store = store}));
  auto lease = open_client().acquire("key");
  ASSERT_TRUE(other.release(lease.id()));
  EXPECT_FALSE(lease.extend(1min));
  EXPECT_TRUE(closes());
  EXPECT_TRUE(eventually([&] { return lease.lost().stop_requested(); }));
}

TEST_F(ClientLifetime, EveryLeaseCounts) {
  std::optional<Locks> locks = open_client();
  std::optional<Lease> first = locks->acquire("first");
  std::optional<Lease> second = locks->acquire("second");
  locks.reset();
  first.reset();
  EXPECT_TRUE(is_open());
  EXPECT_TRUE(store->stored("second"));
  second.reset();
  EXPECT_TRUE(closed->wait_for(0s));
  EXPECT_FALSE(store->stored("second"));
}

TEST_F(ClientLifetime, CloseClosesRegardlessOfLeases) {
  auto locks = open_client();
  const auto lease = locks.acquire("key");
  locks.close();
  EXPECT_TRUE(closed->wait_for(0s));
  EXPECT_TRUE(lease.lost().stop_requested());
  EXPECT_FALSE(store->stored("key"));
}

TEST_F(ClientLifetime, LeaseThatCouldNotBeReleasedDoesNotKeepClientOpen) {
  FaultControl faults;
  auto lease = Locks(with_faults(std::make_unique<CloseReported>(store, closed), faults), {.log = silent()})
                   .acquire("key", {.ttl = 200ms});
  faults.always(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  expect_error(ErrorCode::service_unavailable, [&] { lease.release_with_retries(); });
  EXPECT_TRUE(closes());
}

TEST_F(ClientLifetime, LastLeaseCanBeDestroyedOnIoThread) {
  const auto begun = std::make_shared<Signal>();
  const auto alone = std::make_shared<Signal>();
  const auto destroyed = std::make_shared<Signal>();
  {
    auto locks = open_client();
    auto lease = std::make_shared<Lease>(locks.acquire("key"));
    locks.async_is_locked("key", [=, lease = std::move(lease)](const std::exception_ptr&, bool) mutable {
      begun->set();
      alone->wait_for(60s);
      lease.reset();
      destroyed->set();
    });
    EXPECT_TRUE(begun->wait_for(60s));
  }
  EXPECT_TRUE(is_open());
  alone->set();
  EXPECT_TRUE(destroyed->wait_for(60s))
      << "the destructor must wait neither for its release nor for the client to close";
  EXPECT_TRUE(closes());
  EXPECT_FALSE(store->stored("key"));
}

TEST_F(ClientLifetime, LastLeaseCanBeDestroyedInLostCallback) {
  std::optional<Lease> last;
  std::optional<Lease> doomed;
  {
    auto locks = open_client({.dispose_timeout = 10min});
    last = locks.acquire("last", {.ttl = 1h});
    doomed = locks.acquire("doomed", {.ttl = 50ms});
  }
  Signal destroyed;
  const std::stop_callback on_lost(doomed->lost(), [&] {
    last.reset();
    destroyed.set();
  });
  EXPECT_TRUE(destroyed.wait_for(60s));
  EXPECT_TRUE(closes());
  EXPECT_FALSE(store->stored("last"));
}

TEST_F(ClientLifetime, LostLeaseCanBeDestroyedInItsOwnLostCallback) {
  std::optional<Lease> lease = open_client().acquire("key", {.ttl = 50ms});
  Signal destroyed;
  const std::stop_callback on_lost(lease->lost(), [&] {
    lease.reset();
    destroyed.set();
  });
  EXPECT_TRUE(destroyed.wait_for(60s));
  EXPECT_TRUE(closes());
}

TEST_F(ClientLifetime, LeaseKeepsClientOnCallersExecutorOpen) {
  asio::io_context context;
  std::optional<Lease> lease;
  {
    auto locks = open_on(context.get_executor(), std::make_unique<CloseReported>(store, closed));
    locks.async_acquire("key", {.ttl = 1h}, [&](const std::exception_ptr&, Lease got) { lease = std::move(got); });
    while (!lease && context.run_one_for(60s) > 0) {
    }
  }
  ASSERT_TRUE(lease);
  context.poll();
  EXPECT_TRUE(store->stored("key"));
  EXPECT_FALSE(lease->lost().stop_requested());
  lease.reset();
  context.restart();
  context.run();
  EXPECT_TRUE(closed->wait_for(0s));
  EXPECT_FALSE(store->stored("key"));
}

// A backend whose acquires end only when the test allows it, even if they are stopped.
class LateBackend : public CloseReported {
 public:
  LateBackend(std::shared_ptr<MemoryStore> store, std::shared_ptr<Signal> closed, std::shared_ptr<Signal> asked,
              std::shared_ptr<std::atomic<bool>> answer)
      : CloseReported(std::move(store), std::move(closed)), asked_(std::move(asked)), answer_(std::move(answer)) {}

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits&) override {
    asked_->set();
    asio::steady_timer timer(co_await asio::this_coro::executor);
    while (!*answer_) {
      timer.expires_after(5ms);
      co_await timer.async_wait(asio::use_awaitable);
    }
    const CallLimits own{{}, steady_clock::now() + 60s};
    co_return co_await CloseReported::acquire(request, own);
  }

 private:
  const std::shared_ptr<Signal> asked_;
  const std::shared_ptr<std::atomic<bool>> answer_;
};

TEST_F(ClientLifetime, AcquireThatSucceedsAfterCloseIsRetractedAndAborted) {
  const auto asked = std::make_shared<Signal>();
  const auto answer = std::make_shared<std::atomic<bool>>(false);
  Locks locks(std::make_unique<LateBackend>(store, closed, asked, answer), {.dispose_timeout = 1ms});
  auto acquiring = locks.async_acquire("key", {.ttl = 1h, .auto_extend = true}, asio::use_future);
  auto trying = locks.async_try_acquire("other", {.ttl = 1h}, asio::use_future);
  ASSERT_TRUE(asked->wait_for(60s));
  locks.close();
  *answer = true;
  expect_error(ErrorCode::aborted, [&] { (void)acquiring.get(); });
  expect_error(ErrorCode::aborted, [&] { (void)trying.get(); });
  EXPECT_TRUE(eventually([&] { return !store->stored("key") && !store->stored("other"); }));
}

TEST(LeaseDisposal, DestructorRetriesTransientErrors) {
  std::atomic<int> reported{0};
  FaultyClient client(
      {.dispose_timeout = 60s, .callbacks = {.on_release_error = [&](const LockError&, const auto&) { ++reported; }}});
  client.faults.next(Operation::release, Fault::fail(ErrorCode::service_unavailable), 2);
  { const auto lease = client.locks.acquire("key", {.ttl = 1h}); }
  EXPECT_FALSE(client.store->stored("key"));
  EXPECT_EQ(client.faults.calls(Operation::release), 3U);
  EXPECT_EQ(reported, 0);
}

TEST(LeaseDisposal, ReleaseWithLostReplyIsRepeatedAndNotReportedAsLoss) {
  std::atomic<int> reported{0};
  FaultyClient client(
      {.dispose_timeout = 60s, .callbacks = {.on_release_error = [&](const LockError&, const auto&) { ++reported; }}});
  client.faults.next(Operation::release, Fault::lose_reply());
  { const auto lease = client.locks.acquire("key", {.ttl = 1h}); }
  EXPECT_EQ(client.faults.calls(Operation::release), 2U);
  EXPECT_EQ(reported, 0);
}

TEST(LeaseDisposal, PermanentErrorsAreNotRetried) {
  FaultyClient client({.dispose_timeout = 60s, .log = silent()});
  client.faults.always(Operation::release, Fault::fail(ErrorCode::auth_failed));
  { const auto lease = client.locks.acquire("key", {.ttl = 1h}); }
  EXPECT_EQ(client.faults.calls(Operation::release), 1U);
}

TEST(LeaseDisposal, DestructorsDoNotWaitAfterOneTimedOut) {
  std::atomic<int> reported{0};
  FaultyClient client({.dispose_timeout = 300ms,
                       .callbacks = {.on_release_error = [&](const LockError&, const auto&) { ++reported; }}});
  std::vector<Lease> leases;
  for (int i = 0; i < 200; ++i) leases.push_back(client.locks.acquire("key " + std::to_string(i), {.ttl = 1h}));
  client.faults.always(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  const auto start = steady_clock::now();
  leases.clear();
  EXPECT_LT(steady_clock::now() - start, 30s)
      << "only one destructor may wait for 300 ms; 200 of them would take a minute";
  EXPECT_GE(steady_clock::now() - start, 300ms);
  EXPECT_EQ(reported, 1) << "only by the destructor that waited; the others still retry in the background";
  client.faults.clear(Operation::release);
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 200; ++i) {
      if (client.store->stored("key " + std::to_string(i))) return false;
    }
    return true;
  })) << "all locks must be released in the background, including the first";

  // Destructors wait again, because a request has succeeded.
  client.faults.next(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  { const auto lease = client.locks.acquire("again", {.ttl = 1h}); }
  EXPECT_FALSE(client.store->stored("again"));
  EXPECT_EQ(reported, 1);
}

TEST(LeaseDisposal, BackgroundRetriesEndAtLeaseDeadline) {
  Signal reported;
  FaultyClient client(
      {.dispose_timeout = 0ms, .callbacks = {.on_release_error = [&](const LockError& error, const auto&) {
                                 EXPECT_EQ(error.code(), ErrorCode::service_unavailable);
                                 reported.set();
                               }}});
  client.faults.always(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  auto start = steady_clock::now();
  {
    const auto lease = client.locks.acquire("key", {.ttl = 1s});
    start = steady_clock::now();
  }
  EXPECT_TRUE(reported.wait_for(60s));
  EXPECT_GE(steady_clock::now() - start, 900ms);
  EXPECT_GE(client.faults.calls(Operation::release), 2U);
}

TEST(LeaseDisposal, ZeroDisposeTimeoutReleasesWithoutWaiting) {
  const auto store = std::make_shared<MemoryStore>();
  FaultControl faults;
  Gate gate;
  {
    Locks locks(with_faults(make_memory_backend({.store = store}), faults), {.dispose_timeout = 0ms});
    faults.next(Operation::release, Fault::hold(gate));
    { const auto lease = locks.acquire("key", {.ttl = 1h}); }
    EXPECT_TRUE(store->stored("key")) << "the release must still be pending";
    gate.open();
    EXPECT_TRUE(eventually([&] { return !store->stored("key"); }));
    locks
        .async_with_lock(
            "section", {.ttl = 1h}, [](Lease&) -> asio::awaitable<void> { co_return; }, asio::use_future)
        .get();
    EXPECT_TRUE(eventually([&] { return !store->stored("section"); }));
    const auto left = locks.acquire("left", {.ttl = 1h});
    locks.close();
    EXPECT_TRUE(eventually([&] { return left.lost().stop_requested() && !store->stored("left"); }));
  }
}

TEST(LeaseDisposal, CloseReportsReleasesItHadToStop) {
  std::atomic<int> reported{0};
  FaultyClient client({.dispose_timeout = 100ms,
                       .callbacks = {.on_release_error = [&](const LockError&, const auto&) { ++reported; }}});
  std::optional<Lease> waits = client.locks.acquire("waits", {.ttl = 1h});
  std::optional<Lease> does_not_wait = client.locks.acquire("does not wait", {.ttl = 1h});
  client.faults.always(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  waits.reset();
  EXPECT_EQ(reported, 1);
  does_not_wait.reset();
  EXPECT_EQ(reported, 1);
  client.locks.close();
  EXPECT_EQ(reported, 2);
}

}  // namespace
}  // namespace syncguard::testing
