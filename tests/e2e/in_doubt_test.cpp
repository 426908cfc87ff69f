// Requests in doubt: they may have taken effect, but there was no reply.

#include "e2e/faulty_client.hpp"
#include "support/stub_backend.hpp"

#include <asio/use_future.hpp>

#include <future>

namespace syncguard::testing {
namespace {

class Broken : public StubBackend {
 public:
  asio::awaitable<AcquireReply> acquire(const AcquireRequest&, const CallLimits&) override {
    throw std::out_of_range("a bug");
    co_return Contended{};
  }
};

TEST(InDoubt, LostReplyDoesNotMakeAcquireContendWithItself) {
  FaultyClient client;
  client.faults.next(Operation::acquire, Fault::lose_reply(), 3);
  const auto lease = client.locks.acquire("key", {.wait = {.retry_delay = 1ms}});
  EXPECT_EQ(lease.fence(), Fence(1)) << "the first request was granted, the fourth got the reply";
  EXPECT_EQ(client.faults.calls(Operation::acquire), 4U);
  EXPECT_EQ(client.store->fence_counter("key"), 1U);
}

TEST(InDoubt, TransientErrorsAreRetriedAndPermanentOnesAreNot) {
  FaultyClient client;
  for (const auto code : {ErrorCode::service_unavailable, ErrorCode::rate_limited, ErrorCode::network_timeout}) {
    client.faults.next(Operation::acquire, Fault::fail(code));
  }
  EXPECT_TRUE(client.locks.acquire("key", {.wait = {.retry_delay = 1ms}}));
  for (const auto code : {ErrorCode::auth_failed, ErrorCode::invalid_argument, ErrorCode::internal}) {
    client.faults.next(Operation::acquire, Fault::fail(code));
    expect_error(code, [&] { (void)client.locks.acquire("key"); });
  }
}

TEST(InDoubt, TryAcquireWithLostReplyIsInDoubtAndLeavesNoLock) {
  FaultyClient client;
  client.faults.next(Operation::acquire, Fault::lose_reply());
  const auto error = error_of([&] { (void)client.locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::network_timeout);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_EQ(error->context().key, "key");
  EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
}

// The first extend takes effect after the second one, and shortens the lock.
TEST(InDoubt, LateExtendNeverLeavesTwoHolders) {
  FaultyClient client({.operation_timeout = 200ms});
  const Locks other(make_memory_backend({.store = client.store}), {});
  auto lease = client.locks.acquire("key", {.ttl = 3s});
  client.faults.next(Operation::extend, Fault::delay(600ms));
  const auto error = error_of([&] { (void)lease.extend(500ms); });
  ASSERT_TRUE(error && error->in_doubt());
  // Fails if the machine is so slow that the lease is lost by now, which is safe, too.
  (void)lease.extend(10s);
  EXPECT_LE(lease.remaining(), 500ms);
  const auto next = other.acquire("key", {.wait = {.timeout = 60s, .retry_delay = 1ms}});
  EXPECT_EQ(lease.remaining(), 0ms) << "the key has a new holder";
}

TEST(InDoubt, OverflowingInDoubtAcquiresExpireByTtl) {
  constexpr int capacity = 4096;
  constexpr int soonest = 3;
  std::mutex mutex;
  std::vector<std::string> warnings;
  FaultyClient client({.log = Log([&](LogLevel level, std::string_view message) {
                         const std::lock_guard lock(mutex);
                         if (level == LogLevel::warning) warnings.emplace_back(message);
                       })});
  client.faults.always(Operation::acquire, Fault::lose_reply());
  client.faults.always(Operation::retract, Fault::fail(ErrorCode::service_unavailable));
  const auto acquire = [&](const std::string& key, std::chrono::milliseconds ttl) {
    expect_error(ErrorCode::network_timeout, [&] { (void)client.locks.try_acquire(key, {.ttl = ttl}); });
  };
  for (int i = 0; i < soonest; ++i) acquire("soonest " + std::to_string(i), 10min);
  for (int i = 0; i < capacity; ++i) acquire("key " + std::to_string(i), 1h);

  client.faults.clear(Operation::retract);
  for (int i = 0; i < capacity; ++i) {
    ASSERT_TRUE(eventually([&] { return !client.store->stored("key " + std::to_string(i)); })) << i;
  }
  for (int i = 0; i < soonest; ++i) EXPECT_TRUE(client.store->stored("soonest " + std::to_string(i))) << i;
  const auto warned = [&] {
    const std::lock_guard lock(mutex);
    return !warnings.empty();
  };
  ASSERT_TRUE(eventually(warned));
  const std::lock_guard lock(mutex);
  EXPECT_EQ(warnings.size(), 1U) << "there must be at most one warning per minute";
  EXPECT_THAT(warnings.front(), ::testing::HasSubstr("1 so far"));
}

TEST(InDoubt, AcquireThatTimedOutInDoubtLeavesNoLock) {
  FaultyClient client;
  client.faults.always(Operation::acquire, Fault::lose_reply());
  const auto error =
      error_of([&] { (void)client.locks.acquire("key", {.wait = {.timeout = 30ms, .retry_delay = 5ms}}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::acquisition_timeout);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("NetworkTimeout"));
  EXPECT_TRUE(error->in_doubt());
  EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
}

TEST(InDoubt, LostReplyFollowedByOtherFailuresIsRetracted) {
  FaultyClient client;
  client.faults.next(Operation::acquire, Fault::lose_reply());
  client.faults.always(Operation::acquire, Fault::fail(ErrorCode::service_unavailable));
  const auto error =
      error_of([&] { (void)client.locks.acquire("key", {.wait = {.timeout = 30ms, .retry_delay = 5ms}}); });
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
}

TEST(InDoubt, StopEndsEveryPendingRequest) {
  FaultyClient client({.operation_timeout = 60s});
  const Gate never;
  auto lease = client.locks.acquire("key");
  auto other = client.locks.acquire("other");
  for (const auto operation :
       {Operation::release, Operation::extend, Operation::is_locked, Operation::lookup, Operation::join}) {
    client.faults.always(operation, Fault::hold(never));
  }
  std::stop_source stop;
  const auto token = stop.get_token();
  const std::vector<std::function<void()>> calls = {
      [&] { (void)client.locks.release(LockId::generate(), token); },
      [&] { (void)client.locks.extend(LockId::generate(), 1s, token); },
      [&] { (void)client.locks.is_locked("key", token); },
      [&] { (void)client.locks.lookup(Key("key"), token); },
      [&] { (void)client.locks.acquire("key", {.wait = {.timeout = 60s}}, token); },  // joining
      [&] { (void)lease.extend(20s, token); },
      [&] { (void)other.release(token); },
  };
  std::vector<std::future<std::optional<LockError>>> outcomes;
  for (const auto& call : calls) outcomes.push_back(std::async(std::launch::async, [&] { return error_of(call); }));
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::release, 2));
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::extend, 2));
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::is_locked, 1));
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::lookup, 1));
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::join, 1));
  const auto requested = steady_clock::now();
  stop.request_stop();
  for (auto& outcome : outcomes) {
    const auto error = outcome.get();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::aborted) << error->what();
  }
  EXPECT_LT(steady_clock::now() - requested, 30s) << "the stop must end the call; its timeout is 60 s";
  for (const auto operation : {Operation::release, Operation::extend}) client.faults.clear(operation);
}

TEST(InDoubt, LastAttemptOutlastsTimeoutByAtMostOneOperation) {
  FaultyClient client({.operation_timeout = 4s});
  const Gate never;
  const auto lease = client.locks.acquire("key");
  client.faults.always(Operation::join, Fault::hold(never));
  client.faults.next(Operation::acquire, Fault::delay(0ms));
  client.faults.always(Operation::acquire, Fault::hold(never));
  const auto start = steady_clock::now();
  expect_error(ErrorCode::acquisition_timeout,
               [&] { (void)client.locks.acquire("key", {.wait = {.timeout = 100ms}}); });
  EXPECT_LT(steady_clock::now() - start, 2 * 4s) << "joining the queue must not get its own timeout";
}

TEST(InDoubt, TimeoutsCanBeForever) {
  FaultyClient client(
      {.operation_timeout = std::chrono::milliseconds::max(), .dispose_timeout = std::chrono::milliseconds::max()});
  client.faults.next(Operation::acquire, Fault::delay(20ms));
  client.faults.next(Operation::release, Fault::delay(20ms));
  { EXPECT_TRUE(client.locks.try_acquire("key")); }
  EXPECT_FALSE(client.store->stored("key"));
}

TEST(InDoubt, ThrowingRandomSourceIsReplaced) {
  FaultyClient client({.callbacks = {.random = []() -> double { throw std::runtime_error("no luck"); }},
                       .log = Log([](LogLevel, std::string_view) {})});
  client.faults.next(Operation::acquire, Fault::fail(ErrorCode::service_unavailable));
  const auto lease = client.locks.acquire("key", {.ttl = 4500ms, .auto_extend = true, .wait = {.retry_delay = 1ms}});
  client.faults.next(Operation::extend, Fault::fail(ErrorCode::service_unavailable));
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::extend, 3, 60s));
  EXPECT_FALSE(lease.lost().stop_requested());
}

TEST(InDoubt, FailedRetractionIsRetried) {
  FaultyClient client;
  Gate third;
  client.faults.next(Operation::acquire, Fault::lose_reply());
  client.faults.next(Operation::retract, Fault::fail(ErrorCode::service_unavailable), 2);
  client.faults.next(Operation::retract, Fault::hold(third));
  expect_error(ErrorCode::network_timeout, [&] { (void)client.locks.try_acquire("key"); });
  EXPECT_TRUE(client.store->stored("key"));
  third.open();
  EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
  EXPECT_EQ(client.faults.calls(Operation::retract), 3U);
}

TEST(InDoubt, FailedRetractionIsRetriedDuringClose) {
  const auto store = std::make_shared<MemoryStore>();
  {
    FaultControl faults;
    Locks locks(with_faults(make_memory_backend({.store = store}), faults), {.dispose_timeout = 1min});
    faults.next(Operation::acquire, Fault::lose_reply());
    faults.next(Operation::retract, Fault::fail(ErrorCode::service_unavailable), 2);
    expect_error(ErrorCode::network_timeout, [&] { (void)locks.try_acquire("key"); });
    EXPECT_TRUE(store->stored("key"));
  }
  EXPECT_FALSE(store->stored("key")) << "close() must retract the acquire";
}

TEST(InDoubt, InDoubtReleaseThatWorkedIsNotReported) {
  std::atomic<int> alarms{0};
  FaultyClient client({.callbacks = {.on_release_error = [&](const LockError&, const ReleaseContext&) { ++alarms; }}});
  {
    auto lease = client.locks.acquire("key");
    client.faults.next(Operation::release, Fault::lose_reply());
    expect_error(ErrorCode::network_timeout, [&] { (void)lease.release(); });
    EXPECT_FALSE(client.store->stored("key")) << "the release must have taken effect";
  }
  EXPECT_EQ(alarms, 0);
  {
    auto lease = client.locks.acquire("key");
    client.faults.next(Operation::release, Fault::fail(ErrorCode::service_unavailable));
    expect_error(ErrorCode::service_unavailable, [&] { (void)lease.release(); });
    EXPECT_TRUE(client.locks.release(lease.id())) << "another caller releases the lock";
  }
  EXPECT_EQ(alarms, 1);
}

TEST(InDoubt, CleanupOfStoppedAcquireNeverOvertakesIt) {
  FaultyClient client({.operation_timeout = 60s});
  Gate gate;
  client.faults.next(Operation::acquire, Fault::hold(gate));
  std::stop_source stop;
  auto acquiring = std::async(std::launch::async, [&] {
    const auto error = error_of([&] { (void)client.locks.acquire("key", {}, stop.get_token()); });
    return std::pair(error, steady_clock::now());
  });
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::acquire, 1));
  const auto requested = steady_clock::now();
  stop.request_stop();
  const auto [error, ended] = acquiring.get();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::aborted);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_LT(ended - requested, 30s) << "the stop must end the call; its timeout is 60 s";

  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(client.faults.calls(Operation::retract), 0U) << "the acquire has no reply yet";
  gate.open();
  EXPECT_TRUE(eventually([&] { return client.store->fence_counter("key") == 1 && !client.store->stored("key"); }));
  EXPECT_EQ(client.faults.calls(Operation::retract), 1U);
}

TEST(InDoubt, RepeatNeverOvertakesTimedOutAcquire) {
  FaultyClient client({.operation_timeout = 50ms});
  Gate gate;
  client.faults.next(Operation::acquire, Fault::hold(gate));
  auto acquiring = client.locks.async_acquire(
      "key",
      {.wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries, .retry_delay = 10ms, .max_delay = 10ms}},
      asio::use_future);
  EXPECT_EQ(acquiring.wait_for(300ms), std::future_status::timeout);
  EXPECT_EQ(client.store->fence_counter("key"), 0U) << "no repeated request may run before the first";
  gate.open();
  EXPECT_EQ(acquiring.get().fence(), Fence(1));
}

TEST(InDoubt, OperationEndsByItsTimeout) {
  FaultyClient client({.operation_timeout = 60ms});
  const Gate never;
  for (const auto operation :
       {Operation::acquire, Operation::release, Operation::extend, Operation::is_locked, Operation::lookup}) {
    client.faults.always(operation, Fault::hold(never));
  }
  const auto id = LockId::generate();
  const auto in_time = [](auto function) {
    const auto start = steady_clock::now();
    const auto error = error_of(function);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::network_timeout);
    EXPECT_TRUE(error->in_doubt());
    EXPECT_GE(steady_clock::now() - start, 60ms);
    EXPECT_LT(steady_clock::now() - start, 30s);
  };
  in_time([&] { (void)client.locks.try_acquire("key"); });
  in_time([&] { (void)client.locks.release(id); });
  in_time([&] { (void)client.locks.extend(id, 1s); });
  in_time([&] { (void)client.locks.is_locked("key"); });
  in_time([&] { (void)client.locks.lookup(id); });
}

TEST(InDoubt, ReplySlowerThanTtlGrantsNoLease) {
  FaultyClient client;
  client.faults.next(Operation::acquire, Fault::delay(80ms));
  const auto error = error_of([&] { (void)client.locks.try_acquire("key", {.ttl = 20ms}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::network_timeout);
  EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
}

TEST(InDoubt, WaiterThatCannotJoinQueuePolls) {
  FaultyClient client;
  for (const auto code : {ErrorCode::service_unavailable, ErrorCode::auth_failed}) {
    auto lease = client.locks.acquire("key");
    client.faults.always(Operation::join, Fault::fail(code));
    auto waiting = client.locks.async_acquire(
        "key",
        {.wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries, .retry_delay = 5ms, .max_delay = 5ms}},
        asio::use_future);
    EXPECT_EQ(waiting.wait_for(50ms), std::future_status::timeout);
    EXPECT_TRUE(lease.release());
    EXPECT_TRUE(waiting.get());
  }
}

TEST(InDoubt, UnexpectedBackendExceptionIsInternalError) {
  Locks locks(std::make_unique<Broken>());
  const auto error = error_of([&] { (void)locks.acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::internal);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_THROW(std::rethrow_exception(error->context().cause), std::out_of_range);
  EXPECT_EQ(std::string(error->what()).find("a bug"), std::string::npos)
      << "the text of an unexpected exception must not be shown";
}

TEST(InDoubt, TelemetryReportsUnexpectedBackendException) {
  std::vector<LockEvent> events;
  TelemetryOptions telemetry;
  telemetry.on_event = [&](const LockEvent& event) { events.push_back(event); };
  Locks locks(with_telemetry(std::make_unique<Broken>(), telemetry));
  expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("key"); });
  locks.close();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].result, EventResult::error);
  EXPECT_EQ(events[0].error, ErrorCode::internal);
}

}  // namespace
}  // namespace syncguard::testing
