// The client: its threads, executors and shutdown.

#include "e2e/faulty_client.hpp"
#include "support/stub_backend.hpp"

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_future.hpp>

#include <functional>
#include <future>
#include <limits>
#include <optional>

namespace syncguard::testing {
namespace {

TEST(Client, BlockingCallOnIoThreadIsRejectedAndNamesAsyncCounterpart) {
  FaultyClient client;
  std::promise<std::vector<std::string>> refused;
  client.locks.async_is_locked("key", [&](const std::exception_ptr&, bool) {
    std::vector<std::string> messages;
    Lease none;
    const auto note = [&](auto function) {
      const auto error = error_of(function);
      messages.emplace_back(error && error->code() == ErrorCode::invalid_argument ? error->what() : "not refused");
    };
    note([&] { (void)client.locks.acquire("key"); });
    note([&] { (void)client.locks.try_acquire("key"); });
    note([&] { (void)client.locks.release(LockId::generate()); });
    refused.set_value(messages);
  });
  const auto messages = refused.get_future().get();
  EXPECT_THAT(messages[0], ::testing::HasSubstr("async_acquire"));
  EXPECT_THAT(messages[1], ::testing::HasSubstr("async_try_acquire"));
  EXPECT_THAT(messages[2], ::testing::HasSubstr("async_release"));
}

TEST(Client, EveryOperationWorksOnConstClient) {
  const Locks locks(make_memory_backend());
  auto lease = locks.try_acquire("key");
  ASSERT_TRUE(lease);
  const LockId id = lease->detach();
  EXPECT_TRUE(locks.is_locked("key"));
  EXPECT_TRUE(locks.admin().owns(id));
  EXPECT_TRUE(locks.lookup(Key("key")));
  EXPECT_TRUE(locks.lookup(id));
  EXPECT_TRUE(locks.admin().get_by_key("key"));
  EXPECT_TRUE(locks.admin().get_by_id(id));
  EXPECT_TRUE(locks.admin().get_by_key_raw("key"));
  EXPECT_TRUE(locks.admin().get_by_id_raw(id));
  EXPECT_TRUE(locks.extend(id, 1min));
  EXPECT_TRUE(locks.release(id));
  EXPECT_TRUE(locks.acquire("key"));
  EXPECT_EQ(locks.with_lock("key", {}, [] { return 7; }), 7);
  EXPECT_FALSE(locks.admin().diagnose().empty());
  EXPECT_FALSE(locks.admin().setup().empty());
  locks.close();
}

TEST(Client, NanFromRandomDoesNotCauseBusyLoop) {
  ClientOptions options;
  options.callbacks.random = [] { return std::numeric_limits<double>::quiet_NaN(); };
  FaultyClient client(options);
  const auto lease = client.locks.acquire("key");
  expect_error(ErrorCode::acquisition_timeout,
               [&] { (void)client.locks.acquire("key", {.wait = {.timeout = 500ms, .retry_delay = 200ms}}); });
  // One for the lease. For the second acquire: the first attempt, one after joining, two after each of at most three
  // delays, and the last one.
  EXPECT_LE(client.faults.calls(Operation::acquire), 10U);
}

TEST(Client, CloseEndsPendingOperationsPromptly) {
  FaultyClient client({.operation_timeout = 60s, .dispose_timeout = 2s});
  // Not a gate, which closing would open.
  const auto never = Fault::delay(1h);
  auto held = client.locks.acquire("held");
  client.faults.always(Operation::acquire, never);
  client.faults.always(Operation::extend, never);
  client.faults.always(Operation::is_locked, never);
  auto acquiring = client.locks.async_acquire("key", {}, asio::use_future);
  auto trying = client.locks.async_try_acquire("other", {}, asio::use_future);
  auto extending = held.async_extend(1s, asio::use_future);
  auto asking = client.locks.async_is_locked("key", asio::use_future);
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::acquire, 3));
  const auto start = steady_clock::now();
  client.locks.close();
  // The two acquires are never answered, so close() stops waiting for their cleanup after dispose_timeout.
  EXPECT_LT(steady_clock::now() - start, 30s);
  expect_error(ErrorCode::aborted, [&] { (void)acquiring.get(); });
  expect_error(ErrorCode::aborted, [&] { (void)trying.get(); });
  expect_error(ErrorCode::aborted, [&] { (void)extending.get(); });
  expect_error(ErrorCode::aborted, [&] { (void)asking.get(); });
}

// Calls a function before each release.
class ReleaseObserved : public StubBackend {
 public:
  explicit ReleaseObserved(std::function<void()> before_release) : before_release_(std::move(before_release)) {}

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits&) override {
    co_return Granted{Fence(1), MemoryStore::system_now() + request.ttl, request.ttl};
  }
  asio::awaitable<ReleaseReply> release(const LockId&, const CallLimits&) override {
    before_release_();
    co_return Released{};
  }

 private:
  const std::function<void()> before_release_;
};

TEST(Client, CloseFiresLostBeforeReleasing) {
  Lease first;
  Lease second;
  std::atomic<int> releases{0};
  const Locks locks(std::make_unique<ReleaseObserved>([&] {
    ++releases;
    for (const auto* lease : {&first, &second}) {
      EXPECT_TRUE(lease->lost().stop_requested());
      EXPECT_EQ(lease->remaining(), 0ms);
      EXPECT_FALSE(*lease);
    }
  }));
  first = locks.acquire("first", {.auto_extend = true});
  second = locks.acquire("second");
  locks.close();
  EXPECT_EQ(releases, 2);
}

TEST(Client, CloseReleasesManyLeases) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<Lease> leases;
  {
    Locks locks(make_memory_backend({.store = store}));
    for (int i = 0; i < 500; ++i) leases.push_back(locks.acquire("key " + std::to_string(i)));
    locks.close();
  }
  for (int i = 0; i < 500; ++i) {
    EXPECT_FALSE(store->stored("key " + std::to_string(i)));
    EXPECT_TRUE(leases[static_cast<std::size_t>(i)].lost().stop_requested());
  }
}

TEST(Client, ReportsReleasesThatFailedDuringClose) {
  std::atomic<int> reported{0};
  FaultyClient client(
      {.callbacks = {.on_release_error = [&](const LockError&, const ReleaseContext&) { ++reported; }}});
  const auto lease = client.locks.acquire("key");
  client.faults.next(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  client.locks.close();
  EXPECT_EQ(reported, 1);
  EXPECT_TRUE(lease.lost().stop_requested());
}

TEST(Client, CanBeDestroyedByHandlerOnItsIoThread) {
  const auto store = std::make_shared<MemoryStore>();
  auto locks = std::make_unique<Locks>(make_memory_backend({.store = store}));
  auto lease = std::make_shared<Lease>(locks->acquire("key"));
  Signal destroyed;
  locks->async_is_locked("key", [&](const std::exception_ptr&, bool) {
    lease->detach();
    locks.reset();
    destroyed.set();
  });
  EXPECT_TRUE(destroyed.wait_for(60s));
  EXPECT_TRUE(store->stored("key"));
}

TEST(Client, CanBeClosedInLostCallback) {
  FaultyClient client({.dispose_timeout = 10min});
  const auto lease = client.locks.acquire("key", {.ttl = 30ms});
  Signal closed;
  const std::stop_callback on_lost(lease.lost(), [&] {
    client.locks.close();
    closed.set();
  });
  EXPECT_TRUE(closed.wait_for(60s));
}

TEST(Client, CanBeClosedInLostCallbackDuringClose) {
  FaultyClient client({.dispose_timeout = 80s});
  const auto lease = client.locks.acquire("key");
  const std::stop_callback on_lost(lease.lost(), [&] { client.locks.close(); });
  const auto start = steady_clock::now();
  client.locks.close();
  EXPECT_LT(steady_clock::now() - start, 60s);
}

TEST(Client, CanBeClosedInReleaseErrorCallbackDuringClose) {
  std::optional<Locks> copy;
  FaultyClient client(
      {.dispose_timeout = 80s,
       .callbacks = {.on_release_error = [&](const LockError&, const ReleaseContext&) { copy->close(); }}});
  copy = client.locks;
  const auto lease = client.locks.acquire("key");
  client.faults.next(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  const auto start = steady_clock::now();
  client.locks.close();
  EXPECT_LT(steady_clock::now() - start, 60s);
}

TEST(Client, CloseReleasesLeasesEvenIfOtherCleanupHangs) {
  FaultyClient client({.dispose_timeout = 3s});
  const auto lease = client.locks.acquire("held");
  // Not a gate, which closing would open.
  const auto never = Fault::delay(1h);
  client.faults.next(Operation::acquire, never);
  std::stop_source stop;
  auto doubtful = std::async(std::launch::async, [&] {
    return error_of([&] { (void)client.locks.try_acquire("doubtful", {}, stop.get_token()); });
  });
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::acquire, 2));
  stop.request_stop();
  ASSERT_TRUE(doubtful.get());
  client.locks.close();
  EXPECT_FALSE(client.store->stored("held"));
}

TEST(Client, SectionRunsOnCallersExecutorAndFailedReleaseIsReportedOnce) {
  std::atomic<int> reported{0};
  FaultyClient client(
      {.callbacks = {.on_release_error = [&](const LockError&, const ReleaseContext&) { ++reported; }}});
  client.faults.next(Operation::release, Fault::fail(ErrorCode::auth_failed));
  asio::io_context context;
  std::thread::id ran_on;
  const auto section = [&](Lease&) -> asio::awaitable<void> {
    ran_on = std::this_thread::get_id();
    co_return;
  };
  const auto script = [&]() -> asio::awaitable<void> {
    co_await client.locks.async_with_lock("key", {}, section, asio::use_awaitable);
  };
  auto done = asio::co_spawn(context, script(), asio::use_future);
  context.run();
  done.get();
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  client.locks.close();
  EXPECT_EQ(reported, 1);
  EXPECT_EQ(client.faults.calls(Operation::release), 1U);
}

TEST(Client, ClosingOpensGatesOfHeldRequests) {
  FaultyClient client({.operation_timeout = 1h, .dispose_timeout = 1h});
  const Gate held_before;
  const Gate held_by_closing;
  client.faults.next(Operation::is_locked, Fault::hold(held_before));
  client.faults.always(Operation::release, Fault::hold(held_by_closing));
  const auto lease = client.locks.acquire("key", {.ttl = 1h});
  auto asked = client.locks.async_is_locked("key", asio::use_future);
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::is_locked, 1));
  client.locks.close();
  EXPECT_FALSE(client.store->stored("key"));
  // It ends, with an answer if it was faster than the stop.
  const auto error = error_of([&] { (void)asked.get(); });
  EXPECT_TRUE(!error || error->code() == ErrorCode::aborted) << error->what();
}

// A backend may throw anything.
TEST(Client, ExceptionThatIsNoStandardExceptionBecomesLockError) {
  std::atomic<bool> throws{false};
  auto store = std::make_shared<MemoryStore>([&] {
    if (throws) throw 7;  // NOLINT(*-std-exception-baseclass)
    return MemoryStore::system_now();
  });
  FaultControl faults;
  Locks locks(with_faults(make_memory_backend({.store = store}), faults),
              {.log = Log([](LogLevel, std::string_view) {})});
  const auto lease = locks.acquire("key", {.ttl = 3s, .auto_extend = true});
  throws = true;
  const auto error = error_of([&] { (void)locks.is_locked("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::internal);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_THROW(std::rethrow_exception(error->context().cause), int);
  // A renewal fails, and is retried.
  ASSERT_TRUE(faults.wait_for_calls(Operation::extend, 1, 60s));
  throws = false;
  const auto before = faults.calls(Operation::extend);
  EXPECT_TRUE(faults.wait_for_calls(Operation::extend, before + 1, 60s));
}

TEST(Client, CanceledSectionStillReleases) {
  FaultyClient client;
  asio::io_context context;
  asio::cancellation_signal signal;
  const auto section = [&](Lease&) -> asio::awaitable<void> {
    signal.emit(asio::cancellation_type::terminal);
    asio::steady_timer timer(co_await asio::this_coro::executor, 10s);
    co_await timer.async_wait(asio::use_awaitable);
  };
  std::exception_ptr outcome;
  client.locks.async_with_lock(
      "key", {}, section,
      asio::bind_cancellation_slot(
          signal.slot(), asio::bind_executor(context, [&](std::exception_ptr error) { outcome = std::move(error); })));
  context.run();
  EXPECT_TRUE(outcome);
  EXPECT_FALSE(client.store->stored("key"));
}

TEST(Client, AsyncCallOnClosedClientStillCompletes) {
  std::future<bool> asked;
  {
    FaultyClient client;
    client.locks.close();
    asked = client.locks.async_is_locked("key", asio::use_future);
  }
  expect_error(ErrorCode::aborted, [&] { (void)asked.get(); });
}

TEST(Client, CanBeClosedByManyThreadsConcurrently) {
  FaultyClient client;
  const auto lease = client.locks.acquire("key");
  std::vector<std::future<void>> closers;
  for (int i = 0; i < 8; ++i) closers.push_back(std::async(std::launch::async, [&] { client.locks.close(); }));
  for (auto& closer : closers) closer.get();
  EXPECT_FALSE(client.store->stored("key"));
}

TEST(Client, IsDestroyedSafelyWhileInUse) {
  for (int round = 0; round < 20; ++round) {
    std::optional<FaultyClient> client(std::in_place);
    std::vector<std::future<void>> users;
    std::atomic<int> started{0};
    for (int i = 0; i < 4; ++i) {
      users.push_back(std::async(std::launch::async, [locks = client->locks, &started]() mutable {
        ++started;
        const auto error = error_of([&] {
          for (;;)
            (void)locks.acquire("key", {.wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries}});
        });
        EXPECT_TRUE(error && error->code() == ErrorCode::aborted);
      }));
    }
    EXPECT_TRUE(eventually([&] { return started == 4; }));
    client->locks.close();
    client.reset();
    for (auto& user : users) user.get();
  }
}

TEST(Client, IdleClientDoesNotKeepCallersContextRunning) {
  asio::io_context context;
  auto locks = open_on(context.get_executor(), "memory:");
  std::optional<Lease> kept;
  locks.async_acquire("key", {.ttl = 1h}, [&](const std::exception_ptr&, Lease lease) { kept = std::move(lease); });
  while (!kept && context.run_one_for(60s) > 0) {
  }
  ASSERT_TRUE(kept);
  EXPECT_FALSE(context.stopped()) << "the client must watch the lease's deadline";
  kept->async_release([](const std::exception_ptr&, bool) {});
  const auto start = steady_clock::now();
  context.run();
  EXPECT_LT(steady_clock::now() - start, 60s) << "without a lease, the context must run out of work";
  locks.async_close([](const std::exception_ptr&, bool) {});
  context.restart();
  context.run();
}

// A client on a context that runs only when the test says so, with one lease.
struct ClientOnIdleContext {
  explicit ClientOnIdleContext(TryOptions options) {
    locks.async_acquire("key", {.ttl = options.ttl, .auto_extend = options.auto_extend},
                        [this](const std::exception_ptr&, Lease granted) { lease = std::move(granted); });
    while (!lease && context.run_one_for(60s) > 0) {
    }
  }
  ClientOnIdleContext(const ClientOnIdleContext&) = delete;
  ClientOnIdleContext& operator=(const ClientOnIdleContext&) = delete;
  ~ClientOnIdleContext() {
    lease.reset();
    locks.async_close([](const std::exception_ptr&, bool) {});
    context.restart();
    context.run();
  }

  asio::io_context context;
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  Locks locks = open_on(context.get_executor(), make_memory_backend({.store = store}));
  std::optional<Lease> lease;
};

TEST(Client, LossIsToldAlthoughExecutorDoesNotRun) {
  for (const bool renewed : {false, true}) {
    const ClientOnIdleContext client({.ttl = 50ms, .auto_extend = renewed});
    ASSERT_TRUE(client.lease);
    EXPECT_TRUE(eventually([&] { return client.lease->lost().stop_requested(); })) << "renewed: " << renewed;
  }
}

TEST(Client, RenewalThatRunsTooLateDoesNotExtendLock) {
  ClientOnIdleContext client({.ttl = 50ms, .auto_extend = true});
  ASSERT_TRUE(client.lease);
  ASSERT_TRUE(eventually([&] { return client.lease->lost().stop_requested(); }));
  const auto expires_at = client.store->stored("key")->expires_at;
  client.context.restart();
  client.context.poll();
  EXPECT_EQ(client.store->stored("key")->expires_at, expires_at);
}

TEST(Client, ContextIsDestroyedWithLeasesInItsCoroutines) {
  for (int round = 0; round < 20; ++round) {
    asio::io_context context;
    const auto hold = [](Locks locks) -> asio::awaitable<void> {
      const auto lease = co_await locks.async_acquire("key", {.ttl = 6ms, .auto_extend = true}, asio::use_awaitable);
      asio::steady_timer never(co_await asio::this_coro::executor, 24h);
      co_await never.async_wait(asio::use_awaitable);
    };
    asio::co_spawn(context, hold(open_on(context.get_executor(), "memory:")), asio::detached);
    context.run_for(std::chrono::milliseconds(2 + round % 4));
  }
}

TEST(Client, WorksOnMultithreadedExecutor) {
  asio::thread_pool pool(4);
  auto locks = open_on(pool.get_executor(), "memory:");
  std::atomic<int> inside{0};
  std::atomic<int> overlaps{0};
  const auto work = [&]() -> asio::awaitable<void> {
    for (int i = 0; i < 50; ++i) {
      auto lease = co_await locks.async_acquire("key", {.wait = {.timeout = 60s}}, asio::use_awaitable);
      if (inside.fetch_add(1) != 0) ++overlaps;
      inside.fetch_sub(1);
      co_await lease.async_release(asio::use_awaitable);
    }
  };
  std::vector<std::future<void>> workers;
  for (int w = 0; w < 8; ++w) workers.push_back(asio::co_spawn(pool, work(), asio::use_future));
  for (auto& worker : workers) worker.get();
  EXPECT_EQ(overlaps, 0);
  locks.async_close(asio::use_future).get();
  pool.join();
}

TEST(Client, CompletionsRunOnTheirTokensExecutor) {
  FaultyClient client;
  asio::io_context context;
  std::thread::id completed_on;
  client.locks.async_is_locked("key", asio::bind_executor(context, [&](const std::exception_ptr&, bool) {
                                 completed_on = std::this_thread::get_id();
                               }));
  context.run();
  EXPECT_EQ(completed_on, std::this_thread::get_id());
}

}  // namespace
}  // namespace syncguard::testing
