/// \file
/// Counters, histograms and gauges of clients, as text for Prometheus or as numbers.
#pragma once

#include <syncguard/error.hpp>
#include <syncguard/export.hpp>
#include <syncguard/telemetry.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

namespace detail {
struct MetricsAccess;
}  // namespace detail

/// How often something ended in one way.
struct OutcomeCount {
  EventResult result = EventResult::ok;
  /// Set if the result is fail.
  std::optional<EventReason> reason{};
  /// Set if the result is error.
  std::optional<ErrorCode> error{};
  std::uint64_t count = 0;
};

struct DurationHistogram {
  /// Cumulative: how many durations were at most up_to.
  struct Bucket {
    std::chrono::nanoseconds up_to{};
    std::uint64_t count = 0;
  };

  /// In ascending order. Longer durations are only in count.
  std::vector<Bucket> buckets{};
  std::uint64_t count = 0;
  std::chrono::nanoseconds sum{};
};

/// The metrics of all clients of one backend.
struct BackendMetrics {
  struct Operation {
    EventType type = EventType::acquire;
    /// Every outcome that can be expected, even if it has not occurred, and each other one that has.
    std::vector<OutcomeCount> outcomes{};
    DurationHistogram duration{};
  };

  /// Capabilities::name.
  std::string backend{};
  /// The five operations. A call that waits for a lock makes several acquire attempts.
  std::vector<Operation> operations{};

  /// Calls of acquire that had to wait, by how the wait ended: with the lock, or with an error.
  std::vector<OutcomeCount> waits{};
  /// How long they took.
  DurationHistogram wait_duration{};
  /// Automatic renewals of leases (auto_extend).
  std::vector<OutcomeCount> renewals{};
  /// Leases that were lost: expired before they were released, or gone from the store. Leases that end because their
  /// client is closed are not counted.
  std::vector<OutcomeCount> losses{};
  /// How long leases were held, until they were released, lost or detached.
  DurationHistogram hold_duration{};

  std::int64_t leases_held = 0;
  std::int64_t callers_waiting = 0;
  /// Connections to the server. Zero for backends without one.
  std::uint64_t connections_open = 0;
  /// Admin::clock_skew of the client for which it is largest, ahead or behind; nullopt if no client knows one.
  std::optional<std::chrono::milliseconds> clock_skew{};
};

/// Counts what clients do. Pass it in ClientOptions::metrics, to one client or to several:
///
///     syncguard::Metrics metrics;
///     auto locks = syncguard::open(url, {.metrics = metrics});
///     // in the handler of GET /metrics:
///     respond(metrics.prometheus(), "text/plain; version=0.0.4; charset=utf-8");
///
/// Counting costs a few atomic increments per operation, allocates nothing and drops nothing. The labels are the
/// backend, the operation, the result and its reason, never a key, a lock id or a holder.
///
/// Cheap to copy; copies share the numbers, which live as long as one copy or one client. Any thread may call any
/// function. In a forked child all numbers start at zero.
class SYNCGUARD_EXPORT Metrics {
 public:
  Metrics();

  /// All metrics in the text format of Prometheus, version 0.0.4; docs/metrics.md describes each. Never blocks on the
  /// store.
  [[nodiscard]] std::string prometheus() const;
  /// The same as numbers, one entry per backend, sorted by name. Empty until a client was opened.
  [[nodiscard]] std::vector<BackendMetrics> snapshot() const;

 private:
  friend struct detail::MetricsAccess;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace v0_1
}  // namespace syncguard
