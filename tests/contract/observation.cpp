// What can be observed: the same scenario gives the same events on every backend.

#include "contract/contract.hpp"
#include "contract/parts.hpp"

#include <sstream>

namespace syncguard::testing {

const bool parts::observation = true;

namespace {

// Events as lines, for comparison.
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

TEST_P(Contract, TheSameScenarioGivesTheSameEvents) {
  EventLog log;
  auto locks = open_client(store(), {.telemetry = log.options()});
  auto lease = locks.acquire("key");
  EXPECT_FALSE(locks.try_acquire("key"));
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
                             "isLocked ok key",
                             "lookup ok key",
                             "lookup ok id",
                             "extend ok id",
                             "release ok id",
                             "release fail not-found id",
                             "extend fail not-found id",
                             "lookup fail not-found key",
                             "isLocked ok key",
                             "acquire error Internal key id",
                             "isLocked error Aborted key",
                         }));
}

// For events only: to callers both are gone.
TEST_P(Contract, WhatHasExpiredIsToldFromWhatNeverWas) {
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

TEST_P(Contract, EventsCarryHashesAndNeverRawIdentifiersUnasked) {
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

TEST_P(Contract, RawIdentifiersAreGivenWhereAllowedAndNeverForSecrets) {
  EventLog log;
  auto locks = open_client(store(), {.telemetry = log.options(true)});
  (void)locks.is_locked("plain");
  (void)locks.is_locked("user:API_KEY:7");
  (void)locks.is_locked("reset-Password");
  (void)locks.release(LockId::generate());
  locks.close();
  const auto events = log.events();
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].key, "plain");
  EXPECT_EQ(events[1].key, "");
  EXPECT_EQ(events[2].key, "");
  EXPECT_EQ(events[2].key_hash, hash_key("reset-Password"));
  EXPECT_EQ(events[3].lock_id, "") << "whose it is cannot be told";
}

TEST_P(Contract, RenewalsAndDestructorsReportToo) {
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

TEST_P(Contract, ASlowOrThrowingCallbackHarmsNothing) {
  std::atomic<std::uint64_t> delivered{0};
  std::atomic<std::uint64_t> dropped{0};
  Signal may_go_on;
  TelemetryOptions telemetry;
  telemetry.queue_capacity = 4;
  telemetry.on_event = [&](const LockEvent& event) {
    dropped += event.dropped_before;
    ++delivered;
    may_go_on.wait_for(60s);
    throw std::runtime_error("ignored");
  };
  auto locks = open_client(store(), {.telemetry = telemetry});
  for (int i = 0; i < 50; ++i) (void)locks.is_locked("key");
  may_go_on.set();
  // One that was being delivered, perhaps, and those that found room.
  EXPECT_TRUE(eventually([&] { return delivered >= 4U; }));
  // What was dropped at the very end has no event after it that could tell, but for this one.
  (void)locks.is_locked("key");
  locks.close();
  EXPECT_LE(delivered, 4U + 1 + 1);
  EXPECT_EQ(delivered + dropped, 51U);
}

TEST_P(Contract, DeclaresWhatItCanDo) {
  const auto backend = store().make_backend({});
  const auto capabilities = backend->capabilities();
  EXPECT_FALSE(capabilities.name.empty());
  EXPECT_TRUE(capabilities.fencing);
  EXPECT_GT(capabilities.operation_timeout, 0ms);
}

TEST_P(Contract, FindsItselfFitAndChangesNothing) {
  auto locks = open_client(store());
  const auto lease = locks.acquire("key", {.ttl = 60s});
  EXPECT_FALSE(locks.setup().empty());
  EXPECT_FALSE(locks.setup().empty()) << "may be run again";
  const auto findings = locks.diagnose();
  EXPECT_FALSE(findings.empty());
  for (const auto& finding : findings) {
    EXPECT_NE(finding.verdict, Finding::Verdict::failure) << finding.check << ": " << finding.found;
    EXPECT_FALSE(finding.check.empty());
    EXPECT_FALSE(finding.found.empty()) << finding.check;
    EXPECT_EQ(finding.advice.empty(), finding.verdict == Finding::Verdict::fine) << finding.check;
  }
  EXPECT_TRUE(locks.owns(lease.id()));
  EXPECT_EQ(locks.acquire("other").fence(), Fence(1));
  std::stop_source stop;
  stop.request_stop();
  expect_error(ErrorCode::aborted, [&] { (void)locks.diagnose(stop.get_token()); });
}

}  // namespace
}  // namespace syncguard::testing
