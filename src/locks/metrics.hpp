// The numbers behind Metrics: atomic counters, which clients increase directly.
#pragma once

#include "locks/outcome.hpp"

#include <syncguard/metrics.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace syncguard {
inline namespace v0_1 {
namespace detail {

class Client;

using Counter = std::atomic<std::uint64_t>;

// Counts by outcome: success, each reason of a failure, each error code.
class OutcomeCounters {
 public:
  void add(const Outcome& outcome) noexcept { counters_[index_of(outcome)].fetch_add(1, std::memory_order_relaxed); }
  // The given outcomes, and each other one that has occurred.
  [[nodiscard]] std::vector<OutcomeCount> counts(const std::vector<Outcome>& expected) const;

 private:
  static constexpr std::size_t reasons = static_cast<std::size_t>(EventReason::not_found) + 1;
  static constexpr std::size_t errors = static_cast<std::size_t>(ErrorCode::internal) + 1;
  static constexpr std::size_t size = 1 + reasons + errors;

  static std::size_t index_of(const Outcome& outcome) noexcept;
  static Outcome outcome_at(std::size_t index) noexcept;

  std::array<Counter, size> counters_{};
};

// Counts durations in buckets. The number of all durations is the sum of the buckets, so that the two always agree.
class DurationCounters {
 public:
  // In ascending order.
  using Bounds = std::array<std::chrono::nanoseconds, 16>;
  // bounds must be static.
  explicit DurationCounters(const Bounds& bounds) noexcept : bounds_(bounds) {}

  void add(std::chrono::nanoseconds duration) noexcept {
    const auto bound = std::ranges::lower_bound(bounds_, duration);
    buckets_[static_cast<std::size_t>(bound - bounds_.begin())].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(static_cast<std::uint64_t>(std::max(duration, std::chrono::nanoseconds(0)).count()),
                   std::memory_order_relaxed);
  }
  [[nodiscard]] DurationHistogram histogram() const;

 private:
  const Bounds& bounds_;
  std::array<Counter, std::tuple_size_v<Bounds> + 1> buckets_{};
  Counter sum_{0};  // nanoseconds
};

// The metrics of all clients of one backend. Thread-safe; nothing here allocates or blocks, except snapshot().
class BackendCounters {
 public:
  explicit BackendCounters(std::string name) : name_(std::move(name)) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  void operation_ended(EventType type, const Outcome& outcome, std::chrono::nanoseconds duration) noexcept;
  void observe(const LeaseEvent& event) noexcept;
  void lease_begins() noexcept { leases_held_.fetch_add(1, std::memory_order_relaxed); }
  void lease_ends() noexcept { leases_held_.fetch_sub(1, std::memory_order_relaxed); }
  void wait_begins() noexcept { callers_waiting_.fetch_add(1, std::memory_order_relaxed); }
  void wait_ends() noexcept { callers_waiting_.fetch_sub(1, std::memory_order_relaxed); }

  // Without connections and clock skew.
  [[nodiscard]] BackendMetrics snapshot() const;

 private:
  static const DurationCounters::Bounds request_bounds;
  static const DurationCounters::Bounds lease_bounds;
  static constexpr std::size_t operation_types = static_cast<std::size_t>(EventType::waited);

  struct Operation {
    OutcomeCounters outcomes;
    DurationCounters duration{request_bounds};
  };

  const std::string name_;
  std::array<Operation, operation_types> operations_;
  OutcomeCounters waits_;
  DurationCounters wait_duration_{lease_bounds};
  OutcomeCounters renewals_;
  OutcomeCounters losses_;
  DurationCounters hold_duration_{lease_bounds};
  std::atomic<std::int64_t> leases_held_{0};
  std::atomic<std::int64_t> callers_waiting_{0};
};

struct MetricsAccess {
  // The counters of all clients of the named backend. At most 16 names have their own; later ones share the counters
  // of "other".
  static std::shared_ptr<BackendCounters> counters(const Metrics& metrics, const std::string& backend);
  // Counts the connections of this client and reports its clock skew, until it is destroyed.
  static void add_client(const Metrics& metrics, const std::shared_ptr<Client>& client,
                         std::shared_ptr<BackendCounters> counters);
};

// Measures one operation for the counters. Null counters count nothing.
class OperationTimer {
 public:
  OperationTimer(BackendCounters* counters, std::optional<EventType> type) noexcept
      : counters_(type ? counters : nullptr), type_(type.value_or(EventType::acquire)) {
    if (counters_ != nullptr) start_ = std::chrono::steady_clock::now();
  }

  void ended(const Outcome& outcome) const noexcept {
    if (counters_ != nullptr) counters_->operation_ended(type_, outcome, std::chrono::steady_clock::now() - start_);
  }

 private:
  BackendCounters* counters_;
  EventType type_;
  std::chrono::steady_clock::time_point start_{};
};

}  // namespace detail
}  // namespace v0_1
}  // namespace syncguard
