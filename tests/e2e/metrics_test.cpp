// Metrics count what clients do, for every backend alike.

#include "locks/metrics.hpp"
#include "e2e/faulty_client.hpp"
#include "support/in_child.hpp"
#include "support/is_granted.hpp"
#include "support/stub_backend.hpp"

#include <asio/io_context.hpp>
#include <asio/use_future.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

constexpr auto forever = 10min;

Log silent() {
  return Log([](LogLevel, std::string_view) {});
}

BackendMetrics only_backend(const Metrics& metrics) {
  auto backends = metrics.snapshot();
  EXPECT_EQ(backends.size(), 1U);
  return backends.empty() ? BackendMetrics() : std::move(backends[0]);
}

std::uint64_t sum(const std::vector<OutcomeCount>& counts) {
  std::uint64_t total = 0;
  for (const auto& one : counts) total += one.count;
  return total;
}

std::uint64_t count_of(const std::vector<OutcomeCount>& counts, EventReason reason) {
  for (const auto& one : counts) {
    if (one.reason == reason) return one.count;
  }
  return 0;
}

std::uint64_t count_of(const std::vector<OutcomeCount>& counts, ErrorCode code) {
  for (const auto& one : counts) {
    if (one.error == code) return one.count;
  }
  return 0;
}

std::uint64_t count_of(const std::vector<OutcomeCount>& counts, EventResult result) {
  std::uint64_t total = 0;
  for (const auto& one : counts) {
    if (one.result == result) total += one.count;
  }
  return total;
}

const BackendMetrics::Operation& operation(const BackendMetrics& metrics, EventType type) {
  return metrics.operations.at(static_cast<std::size_t>(type));
}

// One line of text, without its value.
struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

// A strict reader of the text format: HELP, TYPE, then all samples of one metric.
struct ParsedText {
  explicit ParsedText(const std::string& text) {
    EXPECT_TRUE(text.empty() || text.back() == '\n');
    std::istringstream lines(text);
    std::string helped;
    std::string metric;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string word;
      if (line.starts_with("# HELP ")) {
        words >> word >> word >> helped;
        EXPECT_FALSE(types.contains(helped)) << "the samples of a metric must be together: " << line;
        EXPECT_GT(line.size(), std::string("# HELP  ").size() + helped.size()) << line;
      } else if (line.starts_with("# TYPE ")) {
        words >> word >> word >> metric >> word;
        EXPECT_EQ(metric, helped) << line;
        types[metric] = word;
      } else {
        samples.push_back(sample(line));
        const auto& name = samples.back().name;
        const bool is_histogram = types[metric] == "histogram";
        EXPECT_TRUE(is_histogram ? name == metric + "_bucket" || name == metric + "_sum" || name == metric + "_count"
                                 : name == metric)
            << line;
      }
    }
  }

  static Sample sample(const std::string& line) {
    Sample found;
    std::size_t i = line.find('{');
    EXPECT_NE(i, std::string::npos) << line;
    found.name = line.substr(0, i);
    while (line.at(i) != '}') {
      ++i;
      const auto equals = line.find("=\"", i);
      auto& value = found.labels[line.substr(i, equals - i)];
      for (i = equals + 2; line.at(i) != '"'; ++i) {
        const bool escaped = line[i] == '\\';
        if (escaped) ++i;
        value += escaped && line.at(i) == 'n' ? '\n' : line.at(i);
      }
      ++i;
    }
    EXPECT_EQ(line.at(i + 1), ' ') << line;
    std::size_t end = 0;
    const auto number = line.substr(i + 2);
    found.value = std::stod(number, &end);
    EXPECT_EQ(end, number.size()) << line;
    return found;
  }

  std::map<std::string, std::string> types;
  std::vector<Sample> samples;
};

TEST(Metrics, AreEmptyBeforeFirstClient) {
  const Metrics metrics;
  EXPECT_TRUE(metrics.snapshot().empty());
  EXPECT_TRUE(ParsedText(metrics.prometheus()).samples.empty());
}

TEST(Metrics, CountOperationsByOutcome) {
  const Metrics metrics;
  FaultyClient client({.metrics = metrics});
  auto lease = client.locks.acquire("key");
  EXPECT_FALSE(is_granted(client.locks.try_acquire("key")));
  EXPECT_TRUE(client.locks.is_locked("key"));
  EXPECT_TRUE(client.locks.lookup(Key("key")));
  EXPECT_FALSE(client.locks.lookup(Key("absent")));
  EXPECT_TRUE(lease.extend(60s));
  EXPECT_TRUE(lease.release());
  EXPECT_FALSE(client.locks.release(lease.id()));
  EXPECT_FALSE(client.locks.extend(lease.id(), 1s));
  client.faults.next(Operation::is_locked, Fault::fail(ErrorCode::service_unavailable), 2);
  client.faults.next(Operation::is_locked, Fault::lose_reply());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(error_of([&] { (void)client.locks.is_locked("key"); }));

  const auto found = only_backend(metrics);
  EXPECT_EQ(found.backend, client.locks.capabilities().name);
  const auto expect = [&](EventType type, std::uint64_t ok, std::uint64_t fail, std::uint64_t error) {
    const auto& [same_type, outcomes, duration] = operation(found, type);
    EXPECT_EQ(same_type, type);
    EXPECT_EQ(count_of(outcomes, EventResult::ok), ok) << to_string(type);
    EXPECT_EQ(count_of(outcomes, EventResult::fail), fail) << to_string(type);
    EXPECT_EQ(count_of(outcomes, EventResult::error), error) << to_string(type);
    EXPECT_EQ(duration.count, ok + fail + error) << to_string(type);
  };
  expect(EventType::acquire, 1, 1, 0);
  expect(EventType::release, 1, 1, 0);
  expect(EventType::extend, 1, 1, 0);
  expect(EventType::is_locked, 1, 0, 3);
  expect(EventType::lookup, 1, 1, 0);
  EXPECT_EQ(count_of(operation(found, EventType::acquire).outcomes, EventReason::locked), 1U);
  EXPECT_EQ(count_of(operation(found, EventType::release).outcomes, EventReason::not_found), 1U);
  EXPECT_EQ(count_of(operation(found, EventType::is_locked).outcomes, ErrorCode::service_unavailable), 2U);
  EXPECT_EQ(count_of(operation(found, EventType::is_locked).outcomes, ErrorCode::network_timeout), 1U);
}

TEST(Metrics, CountCallersThatWait) {
  const Metrics metrics;
  FaultyClient client({.metrics = metrics});
  auto lease = client.locks.acquire("key");
  EXPECT_EQ(only_backend(metrics).callers_waiting, 0);
  std::vector<std::jthread> callers;
  // One waits in the queue of the store, the other one behind it in the queue of the client.
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] { (void)client.locks.acquire("key", {.wait = {.timeout = forever}}); });
  }
  EXPECT_TRUE(eventually([&] { return only_backend(metrics).callers_waiting == 2; }));
  EXPECT_EQ(sum(only_backend(metrics).waits), 0U) << "both still wait";
  lease.release();
  callers.clear();
  const auto found = only_backend(metrics);
  EXPECT_EQ(found.callers_waiting, 0);
  EXPECT_EQ(count_of(found.waits, EventResult::ok), 2U);
  EXPECT_EQ(sum(found.waits), 2U) << "the first acquire did not wait";
  EXPECT_EQ(found.wait_duration.count, 2U);
  EXPECT_GT(found.wait_duration.sum, 0ns);
}

TEST(Metrics, CountWaitsThatFail) {
  const Metrics metrics;
  FaultyClient client({.metrics = metrics});
  const auto lease = client.locks.acquire("key");
  expect_error(ErrorCode::acquisition_timeout, [&] { (void)client.locks.acquire("key", {.wait = {.timeout = 1ms}}); });
  std::stop_source stop;
  std::jthread stopper([&] {
    EXPECT_TRUE(eventually([&] { return only_backend(metrics).callers_waiting == 1; }));
    stop.request_stop();
  });
  expect_error(ErrorCode::aborted,
               [&] { (void)client.locks.acquire("key", {.wait = {.timeout = forever}}, stop.get_token()); });
  stopper.join();
  const auto found = only_backend(metrics);
  EXPECT_EQ(found.callers_waiting, 0);
  EXPECT_EQ(count_of(found.waits, ErrorCode::acquisition_timeout), 1U);
  EXPECT_EQ(count_of(found.waits, ErrorCode::aborted), 1U);
  EXPECT_EQ(sum(found.waits), 2U);
}

TEST(Metrics, CountLeasesWhileTheyAreHeld) {
  const Metrics metrics;
  FaultyClient client({.metrics = metrics});
  const auto held = [&] { return only_backend(metrics).leases_held; };
  const auto ended = [&] { return only_backend(metrics).hold_duration.count; };
  auto released = client.locks.acquire("released");
  auto detached = client.locks.acquire("detached");
  std::optional<Lease> destroyed = client.locks.acquire("destroyed");
  EXPECT_EQ(held(), 3);
  auto moved = std::move(released);
  EXPECT_EQ(held(), 3);
  EXPECT_EQ(ended(), 0U);
  EXPECT_TRUE(moved.release());
  EXPECT_FALSE(moved.release());
  EXPECT_EQ(held(), 2);
  (void)detached.detach();
  EXPECT_EQ(held(), 1);
  destroyed.reset();
  EXPECT_EQ(held(), 0);
  EXPECT_EQ(ended(), 3U);
  EXPECT_EQ(sum(only_backend(metrics).losses), 0U);
}

TEST(Metrics, LeaseIsHeldWhileItsReleaseFails) {
  const Metrics metrics;
  FaultyClient client({.log = silent(), .metrics = metrics});
  auto lease = client.locks.acquire("key");
  client.faults.next(Operation::release, Fault::fail(ErrorCode::service_unavailable));
  EXPECT_TRUE(error_of([&] { (void)lease.release(); }));
  EXPECT_EQ(only_backend(metrics).leases_held, 1);
  EXPECT_TRUE(lease.release());
  EXPECT_EQ(only_backend(metrics).leases_held, 0);
}

TEST(Metrics, CountLeasesThatExpire) {
  const Metrics metrics;
  FaultyClient client({.log = silent(), .metrics = metrics});
  auto lease = client.locks.acquire("key", {.ttl = 300ms});
  EXPECT_TRUE(eventually([&] { return count_of(only_backend(metrics).losses, EventReason::expired) == 1; }));
  EXPECT_TRUE(eventually([&] { return only_backend(metrics).leases_held == 0; }));
  (void)lease.release();
  EXPECT_EQ(sum(only_backend(metrics).losses), 1U) << "each loss is counted once";
  EXPECT_EQ(only_backend(metrics).hold_duration.count, 1U);
}

TEST(Metrics, CountLeasesWhoseLockIsGone) {
  const Metrics metrics;
  FaultyClient client({.log = silent(), .metrics = metrics});
  const Locks other(make_memory_backend({.store = client.store}));
  auto extended = client.locks.acquire("extended");
  EXPECT_TRUE(other.release(extended.id()));
  EXPECT_FALSE(extended.extend(30s));
  auto released = client.locks.acquire("released");
  EXPECT_TRUE(other.release(released.id()));
  EXPECT_FALSE(released.release());
  const auto found = only_backend(metrics);
  EXPECT_EQ(count_of(found.losses, EventReason::not_found), 2U);
  EXPECT_EQ(sum(found.losses), 2U);
  EXPECT_EQ(found.leases_held, 0);
  EXPECT_EQ(found.hold_duration.count, 2U);
}

TEST(Metrics, ClosingIsNoLoss) {
  const Metrics metrics;
  FaultyClient client({.metrics = metrics});
  const auto lease = client.locks.acquire("key");
  client.locks.close();
  const auto found = only_backend(metrics);
  EXPECT_EQ(sum(found.losses), 0U);
  EXPECT_EQ(found.leases_held, 0);
  EXPECT_EQ(found.hold_duration.count, 1U);
  EXPECT_EQ(count_of(operation(found, EventType::release).outcomes, EventResult::ok), 1U);
}

TEST(Metrics, CountRenewalsByOutcome) {
  const Metrics metrics;
  // Renewed after a third of the ttl. A failed renewal is repeated soon.
  constexpr auto ttl = 6s;
  FaultyClient failing({.log = silent(), .metrics = metrics});
  failing.faults.next(Operation::extend, Fault::fail(ErrorCode::service_unavailable), 2);
  const auto renewed = failing.locks.acquire("key", {.ttl = ttl, .auto_extend = true});
  FaultyClient robbed({.log = silent(), .metrics = metrics});
  const auto lost = robbed.locks.acquire("key", {.ttl = ttl, .auto_extend = true});
  EXPECT_TRUE(Locks(make_memory_backend({.store = robbed.store})).release(lost.id()));
  ASSERT_TRUE(eventually([&] { return count_of(only_backend(metrics).renewals, EventResult::ok) > 0; }));
  EXPECT_EQ(count_of(only_backend(metrics).renewals, ErrorCode::service_unavailable), 2U);
  ASSERT_TRUE(eventually([&] { return count_of(only_backend(metrics).renewals, EventReason::not_found) == 1; }));
  EXPECT_EQ(count_of(only_backend(metrics).losses, EventReason::not_found), 1U);
}

TEST(Metrics, ExtendIsNoRenewal) {
  const Metrics metrics;
  FaultyClient client({.metrics = metrics});
  auto lease = client.locks.acquire("key");
  EXPECT_TRUE(lease.extend(60s));
  EXPECT_EQ(sum(only_backend(metrics).renewals), 0U);
}

class NamedBackend : public StubBackend {
 public:
  explicit NamedBackend(std::string name, std::size_t connections = 0)
      : name_(std::move(name)), connections_(connections) {}
  [[nodiscard]] Capabilities capabilities() const override { return {.name = name_}; }
  [[nodiscard]] std::size_t connections() const noexcept override { return connections_; }

 private:
  const std::string name_;
  const std::size_t connections_;
};

TEST(Metrics, AreSharedByClients) {
  const Metrics metrics;
  FaultyClient one({.metrics = metrics});
  FaultyClient two({.metrics = Metrics(metrics)});
  const auto first = one.locks.acquire("key");
  const auto second = two.locks.acquire("key");
  EXPECT_EQ(only_backend(metrics).leases_held, 2);

  const Locks other(std::make_unique<NamedBackend>("another"), {.metrics = metrics});
  (void)other.is_locked("key");
  const auto found = metrics.snapshot();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].backend, "another");
  EXPECT_EQ(operation(found[0], EventType::is_locked).duration.count, 1U);
  EXPECT_EQ(operation(found[1], EventType::is_locked).duration.count, 0U);
}

TEST(Metrics, SumConnectionsOfOpenClients) {
  const Metrics metrics;
  const auto connections = [&] { return only_backend(metrics).connections_open; };
  const Locks one(std::make_unique<NamedBackend>("stub", 3), {.metrics = metrics});
  {
    // Telemetry wraps the backend.
    const Locks two(std::make_unique<NamedBackend>("stub", 4),
                    {.telemetry = TelemetryOptions{.on_event = [](const LockEvent&) {}}, .metrics = metrics});
    EXPECT_EQ(connections(), 7U);
  }
  EXPECT_TRUE(eventually([&] { return connections() == 3; }));
}

class SkewedBackend : public StubBackend {
 public:
  explicit SkewedBackend(std::optional<std::chrono::milliseconds> skew) : skew_(skew) {}
  [[nodiscard]] std::optional<std::chrono::milliseconds> clock_skew() const noexcept override { return skew_; }

 private:
  const std::optional<std::chrono::milliseconds> skew_;
};

TEST(Metrics, ReportLargestClockSkew) {
  const Metrics metrics;
  const auto has_sample = [&](const std::string& sample) {
    return metrics.prometheus().find("\nsyncguard_clock_skew_seconds" + sample) != std::string::npos;
  };
  const Locks unknown(std::make_unique<SkewedBackend>(std::nullopt), {.metrics = metrics});
  EXPECT_EQ(only_backend(metrics).clock_skew, std::nullopt);
  EXPECT_FALSE(has_sample("{")) << "unknown is not zero";
  const Locks ahead(std::make_unique<SkewedBackend>(20ms), {.metrics = metrics});
  EXPECT_EQ(only_backend(metrics).clock_skew, 20ms);
  EXPECT_TRUE(has_sample("{backend=\"stub\"} 0.02\n"));
  {
    // Telemetry wraps the backend.
    const Locks behind(std::make_unique<SkewedBackend>(-250ms),
                       {.telemetry = TelemetryOptions{.on_event = [](const LockEvent&) {}}, .metrics = metrics});
    EXPECT_EQ(only_backend(metrics).clock_skew, -250ms);
    EXPECT_TRUE(has_sample("{backend=\"stub\"} -0.25\n"));
  }
  EXPECT_TRUE(eventually([&] { return only_backend(metrics).clock_skew == 20ms; }));
}

TEST(Metrics, NumberOfBackendsIsBounded) {
  const Metrics metrics;
  for (int i = 0; i < 100; ++i) {
    const Locks locks(std::make_unique<NamedBackend>("backend " + std::to_string(i)), {.metrics = metrics});
    (void)locks.is_locked("key");
  }
  const auto found = metrics.snapshot();
  EXPECT_EQ(found.size(), 17U);
  EXPECT_EQ(found.back().backend, "other");
  EXPECT_EQ(operation(found.back(), EventType::is_locked).duration.count, 84U);
}

TEST(Metrics, TextIsWellFormed) {
  const Metrics metrics;
  FaultyClient client({.metrics = metrics});
  const std::string odd_name = "a \"quoted\" \\ name\nof two lines";
  const Locks odd(std::make_unique<NamedBackend>(odd_name, 2), {.metrics = metrics});
  for (int i = 0; i < 10; ++i) client.locks.with_lock("key", {}, [] {});
  const auto lease = client.locks.acquire("key");
  EXPECT_FALSE(is_granted(client.locks.try_acquire("key")));
  EXPECT_FALSE(odd.is_locked("key"));

  const ParsedText text(metrics.prometheus());
  for (const auto& [name, type] : text.types) {
    EXPECT_TRUE(name.starts_with("syncguard_")) << name;
    EXPECT_EQ(type == "counter", name.ends_with("_total")) << name;
    EXPECT_EQ(type == "histogram", name.ends_with("_duration_seconds")) << name;
  }
  std::map<std::string, int> series;
  std::map<std::string, double> counts;
  double last = 0;
  double last_bound = 0;
  for (const auto& [name, labels, value] : text.samples) {
    std::string id = name;
    for (const auto& [label, text_of_label] : labels) {
      EXPECT_TRUE(label == "backend" || label == "operation" || label == "result" || label == "reason" || label == "le")
          << label;
      id += "," + label + "=" + text_of_label;
    }
    EXPECT_EQ(++series[id], 1) << "duplicate series " << id;
    if (!name.ends_with("_bucket")) {
      if (name.ends_with("_count")) {
        EXPECT_EQ(value, last) << "+Inf and _count must be equal: " << id;
      }
      if (!name.ends_with("_sum")) last_bound = 0;
      counts[name] += value;
      continue;
    }
    const auto& bound_text = labels.at("le");
    const double bound = bound_text == "+Inf" ? std::numeric_limits<double>::infinity() : std::stod(bound_text);
    EXPECT_GT(bound, last_bound) << id;
    if (last_bound != 0) {
      EXPECT_GE(value, last) << "buckets must be cumulative: " << id;
    }
    last = value;
    last_bound = bound;
    if (std::isinf(bound)) last_bound = 0;
  }
  EXPECT_EQ(counts["syncguard_operations_total"], 10 + 10 + 1 + 1 + 1);
  EXPECT_EQ(counts["syncguard_operation_duration_seconds_count"], counts["syncguard_operations_total"]);
  EXPECT_EQ(counts["syncguard_leases_held"], 1);
  EXPECT_EQ(counts["syncguard_connections_open"], 2);
  EXPECT_EQ(counts["syncguard_hold_duration_seconds_count"], 10);
  EXPECT_TRUE(std::ranges::any_of(text.samples, [&](const auto& one) { return one.labels.at("backend") == odd_name; }));
}

// Otherwise increase() and rate() would miss the first one.
TEST(Metrics, TextHasSeriesThatHaveNotOccurred) {
  const Metrics metrics;
  const FaultyClient client({.metrics = metrics});
  const auto text = metrics.prometheus();
  for (const auto* line :
       {R"(syncguard_leases_lost_total{backend="memory",result="fail",reason="expired"} 0)",
        R"(syncguard_renewals_total{backend="memory",result="error",reason="ServiceUnavailable"} 0)",
        R"(syncguard_waits_total{backend="memory",result="error",reason="AcquisitionTimeout"} 0)",
        R"(syncguard_operations_total{backend="memory",operation="isLocked",result="ok",reason=""} 0)",
        R"(syncguard_operation_duration_seconds_bucket{backend="memory",operation="acquire",le="0.0001"} 0)",
        R"(syncguard_hold_duration_seconds_sum{backend="memory"} 0)", R"(syncguard_leases_held{backend="memory"} 0)"}) {
    EXPECT_THAT(text, ::testing::HasSubstr(std::string(line) + "\n"));
  }
}

TEST(Metrics, NeverContainIdentifiers) {
  const Metrics metrics;
  FaultyClient client({.metrics = metrics});
  const auto lease = client.locks.acquire("a-secret-key");
  const auto text = metrics.prometheus();
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("a-secret-key")));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr(hash_key("a-secret-key"))));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr(std::string(lease.id().view()))));
}

TEST(Metrics, MayBeDestroyedBeforeTheirClient) {
  auto metrics = std::make_optional<Metrics>();
  FaultyClient client({.metrics = *metrics});
  auto lease = client.locks.acquire("key");
  metrics.reset();
  EXPECT_TRUE(lease.release());
  client.locks.close();
}

TEST(Metrics, OutliveTheirClient) {
  const Metrics metrics;
  {
    FaultyClient client({.metrics = metrics});
    (void)client.locks.acquire("key");
  }
  const auto found = only_backend(metrics);
  EXPECT_EQ(count_of(operation(found, EventType::acquire).outcomes, EventResult::ok), 1U);
  EXPECT_EQ(found.leases_held, 0);
}

TEST(Metrics, ForgetLeasesOfAStoppedExecutor) {
  const Metrics metrics;
  {
    asio::io_context context;
    const auto locks = open_on(context.get_executor(), make_memory_backend(), {.metrics = metrics});
    auto lease = locks.async_acquire("key", {}, asio::use_future);
    while (lease.wait_for(0s) != std::future_status::ready) context.run_one();
    const auto held = lease.get();
    EXPECT_EQ(only_backend(metrics).leases_held, 1);
    context.stop();
  }
  EXPECT_EQ(only_backend(metrics).leases_held, 0);
}

TEST(Metrics, StartAtZeroInForkedChild) {
  const Metrics metrics;
  FaultyClient client({.metrics = metrics});
  auto lease = client.locks.acquire("key");
  expect_in_child([&]() -> std::string {
    if (!metrics.snapshot().empty()) return "the child must not see the parent's numbers";
    if (metrics.prometheus().find("syncguard_leases_held{") != std::string::npos) return "nor their text";
    // As a client would, but the thread sanitizer allows no threads here.
    const auto counters = detail::MetricsAccess::counters(metrics, "memory");
    counters->operation_ended(EventType::is_locked, {}, 1ms);
    const auto found = metrics.snapshot();
    if (found.size() != 1 || operation(found[0], EventType::is_locked).duration.count != 1) return "not counted";
    return found[0].leases_held == 0 ? "" : "the parent's lease must not count in the child";
  });
  EXPECT_EQ(only_backend(metrics).leases_held, 1);
  EXPECT_EQ(operation(only_backend(metrics), EventType::is_locked).duration.count, 0U);
  EXPECT_TRUE(lease.release());
}

TEST(Metrics, LoseNothingWithManyThreads) {
  constexpr int threads = 4;
  constexpr int cycles = 100;
  const Metrics metrics;
  FaultyClient client({.metrics = metrics});
  std::atomic<int> running{threads};
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      for (int i = 0; i < cycles; ++i) {
        client.locks.with_lock("own " + std::to_string(t), {}, [] {});
        client.locks.with_lock("shared", {.wait = {.timeout = forever}}, [] {});
      }
      --running;
    });
  }
  // Clients come and go while another thread reads.
  while (running > 0) {
    const FaultyClient short_lived({.metrics = metrics});
    (void)metrics.prometheus();
  }
  workers.clear();
  const auto found = only_backend(metrics);
  constexpr std::uint64_t sections = std::uint64_t{2} * threads * cycles;
  EXPECT_EQ(count_of(operation(found, EventType::acquire).outcomes, EventResult::ok), sections);
  EXPECT_EQ(count_of(operation(found, EventType::release).outcomes, EventResult::ok), sections);
  EXPECT_EQ(found.hold_duration.count, sections);
  EXPECT_EQ(found.leases_held, 0);
  EXPECT_EQ(found.callers_waiting, 0);
  EXPECT_EQ(sum(found.waits), found.wait_duration.count);
}

}  // namespace
}  // namespace syncguard::testing
