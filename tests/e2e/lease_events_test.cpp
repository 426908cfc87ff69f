// Telemetry reports what happens to waiting callers and to leases, besides operations.

#include "e2e/faulty_client.hpp"

#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

class LeaseEventLog {
 public:
  TelemetryOptions options(IncludeRaw include_raw = false) {
    TelemetryOptions options;
    options.on_lease_event = [this](const LockEvent& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    };
    options.include_raw = std::move(include_raw);
    return options;
  }

  std::vector<LockEvent> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }

  // Type and outcome of each event.
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const auto& event : events()) {
      std::string line = std::string(to_string(event.type)) + " " + std::string(to_string(event.result));
      if (event.reason) line += " " + std::string(to_string(*event.reason));
      if (event.error) line += " " + std::string(to_string(*event.error));
      lines.push_back(line);
    }
    return lines;
  }

  [[nodiscard]] bool contains(const std::string& line) const { return std::ranges::count(lines(), line) > 0; }

 private:
  mutable std::mutex mutex_;
  std::vector<LockEvent> events_;
};

using Lines = std::vector<std::string>;

TEST(LeaseEvents, ReleasedLeaseWasHeld) {
  LeaseEventLog log;
  FaultyClient client({.telemetry = log.options()});
  const auto before = BootClock::now();
  auto lease = client.locks.acquire("key");
  const auto acquired = BootClock::now();
  std::this_thread::sleep_for(1ms);
  const auto releasing = BootClock::now();
  EXPECT_TRUE(lease.release());
  const auto after = BootClock::now();
  client.locks.close();
  ASSERT_EQ(log.lines(), Lines{"held ok"});
  const auto event = log.events()[0];
  EXPECT_GE(event.duration, releasing - acquired);
  EXPECT_LE(event.duration, after - before);
  EXPECT_EQ(event.key_hash, hash_key("key"));
  EXPECT_EQ(event.lock_id_hash, hash_key(lease.id().view()));
  EXPECT_TRUE(event.key.empty());
  EXPECT_TRUE(event.lock_id.empty());
}

TEST(LeaseEvents, AreReportedThroughWrappers) {
  LeaseEventLog log;
  FaultControl faults;
  Locks locks(with_faults(with_telemetry(make_memory_backend(), log.options()), faults));
  EXPECT_TRUE(locks.acquire("key").release());
  locks.close();
  EXPECT_EQ(log.lines(), Lines{"held ok"});
}

TEST(LeaseEvents, DetachedAndClosedLeasesWereHeld) {
  LeaseEventLog log;
  FaultyClient client({.telemetry = log.options()});
  (void)client.locks.acquire("detached").detach();
  const auto closed = client.locks.acquire("closed");
  client.locks.close();
  EXPECT_EQ(log.lines(), (Lines{"held ok", "held ok"}));
}

TEST(LeaseEvents, WaitEndsWithLockOrError) {
  LeaseEventLog log;
  const Metrics metrics;
  FaultyClient client({.telemetry = log.options(), .metrics = metrics});
  auto lease = client.locks.acquire("key");
  expect_error(ErrorCode::acquisition_timeout, [&] { (void)client.locks.acquire("key", {.wait = {.timeout = 1ms}}); });
  EXPECT_TRUE(eventually([&] { return log.contains("waited error AcquisitionTimeout"); }));
  const auto start = std::chrono::steady_clock::now();
  std::thread waiter([&] { (void)client.locks.acquire("key", {.wait = {.timeout = 10min}}).detach(); });
  EXPECT_TRUE(eventually([&] { return metrics.snapshot().at(0).callers_waiting == 1; }));
  std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(lease.release());
  waiter.join();
  const auto end = std::chrono::steady_clock::now();
  client.locks.close();
  EXPECT_THAT(log.lines(),
              ::testing::UnorderedElementsAre("waited error AcquisitionTimeout", "held ok", "waited ok", "held ok"));
  for (const auto& event : log.events()) {
    if (event.type != EventType::waited || event.result != EventResult::ok) continue;
    EXPECT_GE(event.duration, 1ms);
    EXPECT_LE(event.duration, end - start);
    EXPECT_EQ(event.key_hash, hash_key("key"));
  }
}

TEST(LeaseEvents, LeaseIsLostWhenItExpires) {
  LeaseEventLog log;
  FaultyClient client({.log = Log([](LogLevel, std::string_view) {}), .telemetry = log.options()});
  auto lease = client.locks.acquire("key", {.ttl = 300ms});
  EXPECT_TRUE(eventually([&] { return log.contains("held ok"); }));
  (void)lease.release();
  client.locks.close();
  EXPECT_EQ(log.lines(), (Lines{"lost fail expired", "held ok"}));
}

TEST(LeaseEvents, LeaseIsLostWhenItsLockIsGone) {
  LeaseEventLog log;
  FaultyClient client({.log = Log([](LogLevel, std::string_view) {}), .telemetry = log.options()});
  const Locks other(make_memory_backend({.store = client.store}));
  auto lease = client.locks.acquire("key");
  EXPECT_TRUE(other.release(lease.id()));
  EXPECT_FALSE(lease.release());
  client.locks.close();
  EXPECT_EQ(log.lines(), (Lines{"lost fail not-found", "held ok"}));
}

TEST(LeaseEvents, RenewalSucceedsOrFails) {
  LeaseEventLog log;
  FaultyClient client({.log = Log([](LogLevel, std::string_view) {}), .telemetry = log.options()});
  client.faults.next(Operation::extend, Fault::fail(ErrorCode::service_unavailable));
  // Renewed after a third of the ttl. A failed renewal is repeated soon.
  auto lease = client.locks.acquire("key", {.ttl = 6s, .auto_extend = true});
  EXPECT_TRUE(eventually([&] { return log.contains("renewed ok"); }));
  EXPECT_TRUE(lease.release());
  client.locks.close();
  auto lines = log.lines();
  ASSERT_GE(lines.size(), 3U);
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  EXPECT_EQ(lines, (Lines{"renewed error ServiceUnavailable", "renewed ok", "held ok"}));
}

TEST(LeaseEvents, OperationsHaveTheirOwnCallback) {
  LeaseEventLog log;
  std::atomic<int> operations{0};
  auto options = log.options();
  options.on_event = [&](const LockEvent& event) {
    EXPECT_LT(event.type, EventType::waited);
    ++operations;
  };
  FaultyClient client({.telemetry = options});
  (void)client.locks.acquire("key");
  client.locks.close();
  EXPECT_EQ(operations, 2);
  EXPECT_EQ(log.lines(), Lines{"held ok"});
}

TEST(LeaseEvents, CarryRawIdentifiersOnlyIfAllowedAndNeverForSecretKeys) {
  LeaseEventLog log;
  FaultyClient client({.telemetry = log.options(true)});
  auto plain = client.locks.acquire("plain");
  EXPECT_TRUE(plain.release());
  EXPECT_TRUE(client.locks.acquire("reset-Password").release());
  client.locks.close();
  const auto events = log.events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].key, "plain");
  EXPECT_EQ(events[0].lock_id, plain.id().view());
  EXPECT_EQ(events[1].key, "");
  EXPECT_EQ(events[1].lock_id, "");
  EXPECT_EQ(events[1].key_hash, hash_key("reset-Password"));
}

TEST(LeaseEvents, ReachEveryWrapperOfABackend) {
  LeaseEventLog inner;
  LeaseEventLog outer;
  const Locks locks(with_telemetry(with_telemetry(make_memory_backend(), inner.options()), outer.options()));
  (void)locks.acquire("key");
  locks.close();
  EXPECT_EQ(inner.lines(), Lines{"held ok"});
  EXPECT_EQ(outer.lines(), Lines{"held ok"});
}

TEST(LeaseEvents, TelemetryNeedsACallback) {
  expect_error(ErrorCode::invalid_argument, [] { (void)with_telemetry(make_memory_backend(), {}); });
}

}  // namespace
}  // namespace syncguard::testing
