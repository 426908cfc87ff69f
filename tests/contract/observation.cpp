// Events, capabilities and diagnosis: the same scenario produces the same events on every backend.

#include "contract/contract.hpp"
#include "contract/parts.hpp"
#include "support/is_granted.hpp"

#include <sstream>

namespace syncguard::testing {

const bool parts::observation = true;

namespace {

// Collects events, and formats them as lines for comparison.
class EventLog {
 public:
  TelemetryOptions options(IncludeRaw include_raw = false) {
    TelemetryOptions options;
    options.on_event = [this](const LockEvent& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    };
    options.include_raw = std::move(include_raw);
    return options;
  }

  // Collects events of leases instead.
  TelemetryOptions lease_options() {
    TelemetryOptions chosen = options();
    std::swap(chosen.on_event, chosen.on_lease_event);
    return chosen;
  }

  std::vector<LockEvent> events() {
    const std::lock_guard lock(mutex_);
    return events_;
  }

  std::vector<std::string> lines() {
    std::vector<std::string> lines;
    for (const auto& event : events()) {
      std::ostringstream line;
      line << to_string(event.type) << ' ' << to_string(event.result);
      if (event.reason) line << ' ' << to_string(*event.reason);
      if (event.error) line << ' ' << to_string(*event.error);
      if (event.locked) line << (*event.locked ? " yes" : " no");
      if (!event.key_hash.empty()) line << " key";
      if (!event.lock_id_hash.empty()) line << " id";
      lines.push_back(line.str());
    }
    return lines;
  }

 private:
  std::mutex mutex_;
  std::vector<LockEvent> events_;
};

TEST_P(Contract, SameScenarioGivesSameEvents) {
  EventLog log;
  auto locks = open_client(store(), {.telemetry = log.options()});
  auto lease = locks.acquire("key");
  EXPECT_FALSE(is_granted(locks.try_acquire("key")));
  EXPECT_TRUE(locks.is_locked("key"));
  EXPECT_TRUE(locks.lookup(Key("key")));
  EXPECT_TRUE(locks.lookup(lease.id()));
  EXPECT_TRUE(lease.extend(60s));
  EXPECT_TRUE(lease.release());
  EXPECT_FALSE(locks.release(lease.id()));
  EXPECT_FALSE(locks.extend(lease.id(), 1s));
  EXPECT_FALSE(locks.lookup(Key("key")));
  EXPECT_FALSE(locks.is_locked("key"));
  store().set_fence_counter("full", Fence::refuse_above);
  expect_error(ErrorCode::internal, [&] { (void)locks.try_acquire("full"); });
  std::stop_source stop;
  stop.request_stop();
  expect_error(ErrorCode::aborted, [&] { (void)locks.is_locked("key", stop.get_token()); });
  locks.close();
  EXPECT_EQ(log.lines(), (std::vector<std::string>{
                             "acquire ok key id",
                             "acquire fail locked key id",
                             "isLocked ok yes key",
                             "lookup ok key",
                             "lookup ok id",
                             "extend ok id",
                             "release ok id",
                             "release fail not-found id",
                             "extend fail not-found id",
                             "lookup fail not-found key",
                             "isLocked ok no key",
                             "acquire error Internal key id",
                             "isLocked error Aborted key",
                         }));
}

TEST_P(Contract, SameScenarioGivesSameEventsOfLeases) {
  EventLog log;
  const Metrics metrics;
  auto locks = open_client(store(), {.telemetry = log.lease_options(), .metrics = metrics});
  auto lease = locks.acquire("key");
  std::optional<Lease> next;
  std::thread waiter([&] { next = locks.acquire("key", {.wait = {.timeout = 10min}}); });
  EXPECT_TRUE(eventually([&] { return metrics.snapshot().at(0).callers_waiting == 1; }));
  EXPECT_TRUE(lease.release());
  waiter.join();
  // Removes the lock behind the lease's back.
  EXPECT_TRUE(locks.release(next->id()));
  EXPECT_FALSE(next->extend(60s));
  locks.close();
  EXPECT_THAT(log.lines(), ::testing::UnorderedElementsAre("held ok key id", "waited ok key id",
                                                           "lost fail not-found key id", "held ok key id"));
  const auto counted = metrics.snapshot().at(0);
  EXPECT_EQ(counted.backend, locks.capabilities().name);
  EXPECT_EQ(counted.wait_duration.count, 1U);
  EXPECT_EQ(counted.hold_duration.count, 2U);
  EXPECT_EQ(counted.leases_held, 0);
  EXPECT_EQ(counted.callers_waiting, 0);
}

// Only events make this distinction. Callers get the same result for both.
TEST_P(Contract, EventsDistinguishExpiredFromNotFound) {
  EventLog log;
  auto locks = open_client(store(), {.telemetry = log.options()});
  const auto expired = LockId::generate();
  const auto long_ago = store().now() - 1min;
  store().put(
      {.key = "key", .lock_id = expired, .expires_at = long_ago + 1s, .acquired_at = long_ago, .fence = Fence(1)});
  for (const auto& id : {expired, LockId::generate()}) {
    EXPECT_FALSE(locks.extend(id, 1s));
    EXPECT_FALSE(locks.release(id));
  }
  locks.close();
  EXPECT_EQ(log.lines(), (std::vector<std::string>{
                             "extend fail expired id",
                             "release fail expired id",
                             "extend fail not-found id",
                             "release fail not-found id",
                         }));
}

TEST_P(Contract, EventsCarryHashesByDefault) {
  EventLog log;
  auto locks = open_client(store(), {.telemetry = log.options()});
  const auto lease = locks.try_acquire("key");
  locks.close();
  const auto events = log.events();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].key_hash, hash_key("key"));
  EXPECT_EQ(events[0].lock_id_hash, hash_key(lease->id().view()));
  EXPECT_TRUE(events[0].key.empty());
  EXPECT_TRUE(events[0].lock_id.empty());
  EXPECT_GE(events[0].duration, 0ns);
}

TEST_P(Contract, EventsCarryRawIdentifiersIfAllowedAndNeverForSecretKeys) {
  EventLog log;
  auto locks = open_client(store(), {.telemetry = log.options(true)});
  (void)locks.is_locked("plain");
  (void)locks.is_locked("user:API_KEY:7");
  (void)locks.is_locked("reset-Password");
  locks.close();
  const auto events = log.events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].key, "plain");
  EXPECT_EQ(events[1].key, "");
  EXPECT_EQ(events[2].key, "");
  EXPECT_EQ(events[2].key_hash, hash_key("reset-Password"));
}

TEST_P(Contract, EventsWithoutKeyCarryRawLockIdsIfAllowed) {
  EventLog log;
  auto locks = open_client(store(), {.telemetry = log.options(true)});
  const auto lease = locks.acquire("plain");
  EXPECT_TRUE(locks.extend(lease.id(), 30s));
  EXPECT_TRUE(locks.lookup(lease.id()));
  EXPECT_TRUE(locks.release(lease.id()));
  const auto unknown = LockId::generate();
  EXPECT_FALSE(locks.release(unknown));
  locks.close();
  const auto events = log.events();
  ASSERT_GE(events.size(), 5U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(events[i].lock_id, lease.id().view()) << to_string(events[i].type);
  EXPECT_EQ(events[4].lock_id, unknown.view());
}

TEST_P(Contract, EventsNeverCarryRawLockIdsOfSecretKeys) {
  EventLog log;
  auto locks = open_client(store(), {.telemetry = log.options(true)});
  auto lease = locks.acquire("reset-Password");
  EXPECT_TRUE(locks.extend(lease.id(), 30s));
  EXPECT_TRUE(lease.extend(30s));
  EXPECT_TRUE(locks.lookup(lease.id()));
  EXPECT_TRUE(lease.release());
  // A lock of another client: only the reply of the lookup says which key it belongs to.
  auto other = open_client(store());
  const auto foreign = other.acquire("api-key");
  EXPECT_TRUE(locks.lookup(foreign.id()));
  auto adopted = locks.adopt(other.acquire("token").detach());
  ASSERT_TRUE(adopted);
  EXPECT_TRUE(adopted->release());
  locks.close();
  const auto events = log.events();
  ASSERT_EQ(events.size(), 9U);
  for (const auto& event : events) {
    EXPECT_EQ(event.lock_id, "") << to_string(event.type);
    EXPECT_FALSE(event.lock_id_hash.empty());
  }
}

TEST_P(Contract, PredicateAlsoAppliesToRawLockIds) {
  EventLog log;
  auto locks = open_client(
      store(), {.telemetry = log.options([](const LockEvent& event) { return event.type == EventType::release; })});
  const auto lease = locks.acquire("plain");
  EXPECT_TRUE(locks.extend(lease.id(), 30s));
  EXPECT_TRUE(locks.release(lease.id()));
  locks.close();
  const auto events = log.events();
  ASSERT_GE(events.size(), 3U);
  EXPECT_EQ(events[0].lock_id, "");
  EXPECT_EQ(events[1].lock_id, "");
  EXPECT_EQ(events[2].lock_id, lease.id().view());
}

TEST_P(Contract, RenewalsAndDestructorsEmitEvents) {
  EventLog log;
  auto locks = open_client(store(), {.telemetry = log.options()});
  {
    const auto lease = locks.acquire("key", {.ttl = 3s, .auto_extend = true});
    EXPECT_TRUE(eventually([&] { return log.lines().size() > 1; }));
  }
  locks.close();
  const auto lines = log.lines();
  EXPECT_EQ(lines.front(), "acquire ok key id");
  EXPECT_THAT(lines, ::testing::Contains("extend ok id"));
  EXPECT_EQ(lines.back(), "release ok id");
}

TEST_P(Contract, SlowOrThrowingCallbackAffectsNothing) {
  std::atomic<std::uint64_t> delivered{0};
  std::atomic<std::uint64_t> dropped{0};
  Signal may_continue;
  TelemetryOptions telemetry;
  telemetry.queue_capacity = 4;
  telemetry.on_event = [&](const LockEvent& event) {
    dropped += event.dropped_before;
    ++delivered;
    may_continue.wait_for(60s);
    throw std::runtime_error("ignored");
  };
  auto locks = open_client(store(), {.telemetry = telemetry});
  for (int i = 0; i < 50; ++i) (void)locks.is_locked("key");
  may_continue.set();
  // The four events that fit into the queue are delivered, and perhaps one that was already being delivered.
  EXPECT_TRUE(eventually([&] { return delivered >= 4U; }));
  // Each event carries the number of events dropped before it, so one more event is needed to report the last drops.
  (void)locks.is_locked("key");
  locks.close();
  EXPECT_LE(delivered, 4U + 1 + 1);
  EXPECT_EQ(delivered + dropped, 51U);
}

TEST_P(Contract, DeclaresCapabilities) {
  const auto backend = store().make_backend({});
  const auto capabilities = backend->capabilities();
  EXPECT_FALSE(capabilities.name.empty());
  EXPECT_TRUE(capabilities.fencing);
  EXPECT_GT(capabilities.operation_timeout, 0ms);
  EXPECT_EQ(capabilities.time_authority, store().time_authority());
  EventLog log;
  const auto locks = open_client(store(), {.telemetry = log.options()});
  EXPECT_EQ(locks.capabilities(), capabilities) << "the client must not change its backend's capabilities";
}

TEST_P(Contract, ClockSkewIsReportedOnlyForClientTimeAuthority) {
  auto locks = open_client(store());
  const auto lease = locks.acquire("key");
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  if (store().time_authority() == TimeAuthority::server) {
    EXPECT_FALSE(locks.admin().clock_skew());
  } else {
    // Locks expire by this host's clock.
    EXPECT_LE(lease.expires_at(), now + 30s);
    EXPECT_GT(lease.expires_at(), now);
  }
}

TEST_P(Contract, DiagnosisPassesAndChangesNothing) {
  auto locks = open_client(store());
  const auto lease = locks.acquire("key", {.ttl = 60s});
  EXPECT_FALSE(locks.admin().setup().empty());
  EXPECT_FALSE(locks.admin().setup().empty()) << "setup must be repeatable";
  const auto findings = locks.admin().diagnose();
  EXPECT_FALSE(findings.empty());
  for (const auto& finding : findings) {
    EXPECT_NE(finding.verdict, Finding::Verdict::failure) << finding.check << ": " << finding.found;
    EXPECT_FALSE(finding.check.empty());
    EXPECT_FALSE(finding.found.empty()) << finding.check;
    EXPECT_EQ(finding.advice.empty(), finding.verdict == Finding::Verdict::fine) << finding.check;
  }
  EXPECT_TRUE(locks.admin().owns(lease.id()));
  EXPECT_EQ(store().fence_counter("key"), lease.fence().value());
  std::stop_source stop;
  stop.request_stop();
  expect_error(ErrorCode::aborted, [&] { (void)locks.admin().diagnose(stop.get_token()); });
}

}  // namespace
}  // namespace syncguard::testing
