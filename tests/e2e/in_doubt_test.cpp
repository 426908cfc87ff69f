// Requests that may have taken effect although nobody knows.

#include "e2e/faulty_client.hpp"

#include <asio/use_future.hpp>

#include <future>

namespace syncguard::testing {
namespace {

class Broken : public Backend {
 public:
  [[nodiscard]] Capabilities capabilities() const override { return {.name = "broken"}; }
  asio::awaitable<AcquireReply> acquire(const AcquireRequest&, const CallLimits&) override {
    throw std::out_of_range("a bug");
    co_return Contended{};
  }
  asio::awaitable<ReleaseReply> release(const LockId&, const CallLimits&) override { co_return Missing::not_found; }
  asio::awaitable<ExtendReply> extend(const LockId&, std::chrono::milliseconds, const CallLimits&) override {
    co_return Missing::not_found;
  }
  asio::awaitable<bool> is_locked(const Key&, const CallLimits&) override { co_return false; }
  asio::awaitable<std::optional<LockRecord>> lookup(const Key&, const CallLimits&) override { co_return std::nullopt; }
  asio::awaitable<std::optional<LockRecord>> lookup(const LockId&, const CallLimits&) override {
    co_return std::nullopt;
  }
};

TEST(InDoubt, ALostReplyNeverMakesAnAcquireLoseToItself) {
  FaultyClient client;
  client.faults.next(Operation::acquire, Fault::lose_reply(), 3);
  const auto lease = client.locks.acquire("key", {.wait = {.retry_delay = 1ms}});
  EXPECT_EQ(lease.fence(), Fence(1)) << "granted by the first request, told by the fourth";
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

TEST(InDoubt, ATryThatLostItsReplySaysSoAndLeavesNoLockBehind) {
  FaultyClient client;
  client.faults.next(Operation::acquire, Fault::lose_reply());
  const auto error = error_of([&] { (void)client.locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::network_timeout);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_EQ(error->context().key, "key");
  EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
}

TEST(InDoubt, AnAcquisitionThatGaveUpInDoubtLeavesNoLockBehind) {
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

TEST(InDoubt, ALostReplyFollowedByOtherFailuresIsStillRetracted) {
  FaultyClient client;
  client.faults.next(Operation::acquire, Fault::lose_reply());
  client.faults.always(Operation::acquire, Fault::fail(ErrorCode::service_unavailable));
  const auto error =
      error_of([&] { (void)client.locks.acquire("key", {.wait = {.timeout = 30ms, .retry_delay = 5ms}}); });
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
}

TEST(InDoubt, AStopEndsEveryRequestThatIsUnderWay) {
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
  EXPECT_LT(steady_clock::now() - requested, 30s) << "long before its time-out";
  for (const auto operation : {Operation::release, Operation::extend}) client.faults.clear(operation);
}

TEST(InDoubt, TheLastAttemptOutlastsTheTimeOutByOneOperationAtMost) {
  FaultyClient client({.operation_timeout = 4s});
  const Gate never;
  const auto lease = client.locks.acquire("key");
  client.faults.always(Operation::join, Fault::hold(never));
  client.faults.next(Operation::acquire, Fault::delay(0ms));
  client.faults.always(Operation::acquire, Fault::hold(never));
  const auto start = steady_clock::now();
  expect_error(ErrorCode::acquisition_timeout,
               [&] { (void)client.locks.acquire("key", {.wait = {.timeout = 100ms}}); });
  EXPECT_LT(steady_clock::now() - start, 2 * 4s) << "joining did not take a time-out of its own";
}

TEST(InDoubt, TimeOutsMayBeForEver) {
  FaultyClient client(
      {.operation_timeout = std::chrono::milliseconds::max(), .dispose_timeout = std::chrono::milliseconds::max()});
  client.faults.next(Operation::acquire, Fault::delay(20ms));
  client.faults.next(Operation::release, Fault::delay(20ms));
  { EXPECT_TRUE(client.locks.try_acquire("key")); }
  EXPECT_FALSE(client.store->stored("key"));
}

TEST(InDoubt, ARandomSourceThatThrowsIsReplaced) {
  FaultyClient client({.callbacks = {.random = []() -> double { throw std::runtime_error("no luck"); }},
                       .log = Log([](LogLevel, std::string_view) {})});
  client.faults.next(Operation::acquire, Fault::fail(ErrorCode::service_unavailable));
  const auto lease = client.locks.acquire("key", {.ttl = 4500ms, .auto_extend = true, .wait = {.retry_delay = 1ms}});
  client.faults.next(Operation::extend, Fault::fail(ErrorCode::service_unavailable));
  ASSERT_TRUE(client.faults.wait_for_calls(Operation::extend, 3, 60s));
  EXPECT_FALSE(lease.lost().stop_requested());
}

TEST(InDoubt, ARetractionThatFailsIsTriedAgain) {
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

TEST(InDoubt, ARetractionThatFailsIsTriedAgainWhileTheClientCloses) {
  const auto store = std::make_shared<MemoryStore>();
  {
    FaultControl faults;
    Locks locks(with_faults(make_memory_backend({.store = store}), faults), {.dispose_timeout = 1min});
    faults.next(Operation::acquire, Fault::lose_reply());
    faults.next(Operation::retract, Fault::fail(ErrorCode::service_unavailable), 2);
    expect_error(ErrorCode::network_timeout, [&] { (void)locks.try_acquire("key"); });
    EXPECT_TRUE(store->stored("key"));
  }
  EXPECT_FALSE(store->stored("key")) << "nobody is left who could take it back";
}

TEST(InDoubt, AReleaseThatWorkedInDoubtIsNoAlarm) {
  std::atomic<int> alarms{0};
  FaultyClient client({.callbacks = {.on_release_error = [&](const LockError&, const ReleaseContext&) { ++alarms; }}});
  {
    auto lease = client.locks.acquire("key");
    client.faults.next(Operation::release, Fault::lose_reply());
    expect_error(ErrorCode::network_timeout, [&] { (void)lease.release(); });
    EXPECT_FALSE(client.store->stored("key")) << "it did arrive";
  }
  EXPECT_EQ(alarms, 0);
  {
    auto lease = client.locks.acquire("key");
    client.faults.next(Operation::release, Fault::fail(ErrorCode::service_unavailable));
    expect_error(ErrorCode::service_unavailable, [&] { (void)lease.release(); });
    EXPECT_TRUE(client.locks.release(lease.id())) << "by somebody else";
  }
  EXPECT_EQ(alarms, 1);
}

TEST(InDoubt, AStopEndsAnAcquireThatIsUnderWayAndItsClearingUpNeverOvertakesIt) {
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
  EXPECT_LT(ended - requested, 30s) << "long before its time-out";

  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(client.faults.calls(Operation::retract), 0U) << "the acquire is still unanswered";
  gate.open();
  EXPECT_TRUE(eventually([&] { return client.store->fence_counter("key") == 1 && !client.store->stored("key"); }));
  EXPECT_EQ(client.faults.calls(Operation::retract), 1U);
}

TEST(InDoubt, ARepeatNeverOvertakesTheAcquireThatTimedOut) {
  FaultyClient client({.operation_timeout = 50ms});
  Gate gate;
  client.faults.next(Operation::acquire, Fault::hold(gate));
  auto acquiring = client.locks.async_acquire(
      "key",
      {.wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries, .retry_delay = 10ms, .max_delay = 10ms}},
      asio::use_future);
  EXPECT_EQ(acquiring.wait_for(300ms), std::future_status::timeout);
  EXPECT_EQ(client.store->fence_counter("key"), 0U) << "all repeats wait behind the first";
  gate.open();
  EXPECT_EQ(acquiring.get().fence(), Fence(1));
}

TEST(InDoubt, OneOperationEndsByItsTimeOut) {
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

TEST(InDoubt, AnAnswerThatTookLongerThanTheTtlIsNoLease) {
  FaultyClient client;
  client.faults.next(Operation::acquire, Fault::delay(80ms));
  const auto error = error_of([&] { (void)client.locks.try_acquire("key", {.ttl = 20ms}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::network_timeout);
  EXPECT_TRUE(eventually([&] { return !client.store->stored("key"); }));
}

TEST(InDoubt, AWaiterWithoutAPlaceInTheQueuePolls) {
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

TEST(InDoubt, WhatABackendThrowsUnexpectedlyIsAnInternalError) {
  Locks locks(std::make_unique<Broken>());
  const auto error = error_of([&] { (void)locks.acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::internal);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_THROW(std::rethrow_exception(error->context().cause), std::out_of_range);
  EXPECT_EQ(std::string(error->what()).find("a bug"), std::string::npos) << "it could have said anything";
}

TEST(InDoubt, TelemetryReportsWhatABackendThrowsUnexpectedly) {
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
