#include "locks/metrics.hpp"

#include "locks/client.hpp"
#include "os/fork.hpp"

#include <charconv>
#include <mutex>
#include <string_view>
#include <tuple>

namespace syncguard {
inline namespace v0_1 {
namespace detail {
namespace {

using namespace std::chrono_literals;

// Errors of a backend. The two others are made above the backends.
constexpr std::array backend_errors{
    ErrorCode::service_unavailable, ErrorCode::auth_failed, ErrorCode::invalid_argument, ErrorCode::rate_limited,
    ErrorCode::network_timeout,     ErrorCode::aborted,     ErrorCode::internal};

std::vector<Outcome> expected_outcomes(std::vector<EventReason> reasons) {
  std::vector<Outcome> outcomes{Outcome{}};
  for (const auto reason : reasons) outcomes.push_back(Outcome::failed(reason));
  for (const auto error : backend_errors) outcomes.push_back(Outcome::failed(error));
  return outcomes;
}

std::vector<Outcome> expected_outcomes_of(EventType operation) {
  switch (operation) {
    case EventType::acquire:
      return expected_outcomes({EventReason::locked});
    case EventType::release:
    case EventType::extend:
      return expected_outcomes({EventReason::expired, EventReason::not_found});
    case EventType::lookup:
      return expected_outcomes({EventReason::not_found});
    default:
      return expected_outcomes({});
  }
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------------
// Counters

std::size_t OutcomeCounters::index_of(const Outcome& outcome) noexcept {
  if (outcome.error) return 1 + reasons + static_cast<std::size_t>(*outcome.error);
  if (outcome.reason) return 1 + static_cast<std::size_t>(*outcome.reason);
  return 0;
}

Outcome OutcomeCounters::outcome_at(std::size_t index) noexcept {
  if (index == 0) return {};
  if (index <= reasons) return Outcome::failed(static_cast<EventReason>(index - 1));
  return Outcome::failed(static_cast<ErrorCode>(index - 1 - reasons));
}

std::vector<OutcomeCount> OutcomeCounters::counts(const std::vector<Outcome>& expected) const {
  std::array<bool, size> is_expected{};
  for (const auto& outcome : expected) is_expected[index_of(outcome)] = true;
  std::vector<OutcomeCount> counts;
  for (std::size_t i = 0; i < size; ++i) {
    const auto count = counters_[i].load(std::memory_order_relaxed);
    if (count == 0 && !is_expected[i]) continue;
    const auto [result, reason, error] = outcome_at(i);
    counts.push_back({result, reason, error, count});
  }
  return counts;
}

DurationHistogram DurationCounters::histogram() const {
  DurationHistogram histogram;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    histogram.count += buckets_[i].load(std::memory_order_relaxed);
    if (i < bounds_.size()) histogram.buckets.push_back({bounds_[i], histogram.count});
  }
  histogram.sum = std::chrono::nanoseconds(static_cast<std::int64_t>(sum_.load(std::memory_order_relaxed)));
  return histogram;
}

// From a local SQLite file to the largest usual timeout.
const DurationCounters::Bounds BackendCounters::request_bounds{100us, 250us, 500us, 1ms,   2500us, 5ms, 10ms,   25ms,
                                                               50ms,  100ms, 250ms, 500ms, 1s,     2s,  5000ms, 10s};
// Sections last from milliseconds to hours.
const DurationCounters::Bounds BackendCounters::lease_bounds{1ms, 5ms, 10ms, 50ms, 100ms, 500ms, 1s, 2s,
                                                             5s,  10s, 30s,  1min, 5min,  15min, 1h, 6h};

void BackendCounters::operation_ended(EventType type, const Outcome& outcome,
                                      std::chrono::nanoseconds duration) noexcept {
  Operation& operation = operations_[static_cast<std::size_t>(type)];
  operation.outcomes.add(outcome);
  operation.duration.add(duration);
}

void BackendCounters::observe(const LeaseEvent& event) noexcept {
  switch (event.type) {
    case EventType::waited:
      waits_.add(event.outcome);
      wait_duration_.add(event.duration);
      break;
    case EventType::renewed:
      renewals_.add(event.outcome);
      break;
    case EventType::lost:
      losses_.add(event.outcome);
      break;
    case EventType::held:
      hold_duration_.add(event.duration);
      break;
    default:
      break;
  }
}

BackendMetrics BackendCounters::snapshot() const {
  BackendMetrics metrics;
  metrics.backend = name_;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const auto type = static_cast<EventType>(i);
    metrics.operations.push_back(
        {type, operations_[i].outcomes.counts(expected_outcomes_of(type)), operations_[i].duration.histogram()});
  }
  auto ends_of_waits = expected_outcomes({});
  ends_of_waits.push_back(Outcome::failed(ErrorCode::acquisition_timeout));
  metrics.waits = waits_.counts(ends_of_waits);
  metrics.wait_duration = wait_duration_.histogram();
  metrics.renewals = renewals_.counts(expected_outcomes_of(EventType::extend));
  metrics.losses = losses_.counts({Outcome::failed(EventReason::expired), Outcome::failed(EventReason::not_found)});
  metrics.hold_duration = hold_duration_.histogram();
  metrics.leases_held = leases_held_.load(std::memory_order_relaxed);
  metrics.callers_waiting = callers_waiting_.load(std::memory_order_relaxed);
  return metrics;
}

}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------
// Metrics

namespace {

// Custom backends choose their names. More of them than this would be a mistake, and must not use up memory.
constexpr std::size_t max_backends = 16;

// The part that each process has for itself: a forked child gets a new one.
struct ProcessCounters {
  struct WatchedClient {
    std::weak_ptr<detail::Client> client;
    std::shared_ptr<detail::BackendCounters> counters;
  };

  const unsigned fork_generation = os::fork_generation();
  std::mutex mutex;
  std::vector<std::shared_ptr<detail::BackendCounters>> backends;
  std::vector<WatchedClient> clients;
};

class PrometheusText {
 public:
  enum class Type { counter, gauge, histogram };

  // Begins a metric. All its samples must follow.
  void metric(std::string_view name, Type type, std::string_view help) {
    static constexpr std::array<std::string_view, 3> types{"counter", "gauge", "histogram"};
    name_ = name;
    append("# HELP ", name_, " ", help, "\n# TYPE ", name_, " ", types[static_cast<std::size_t>(type)], "\n");
  }

  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

  void sample(const Labels& labels, std::string_view value, std::string_view suffix = {}) {
    append(name_, suffix, "{");
    for (std::size_t i = 0; i < labels.size(); ++i) {
      append(i == 0 ? "" : ",", labels[i].first, "=\"");
      append_escaped(labels[i].second);
      append("\"");
    }
    append("} ", value, "\n");
  }

  void outcomes(const Labels& labels, const std::vector<OutcomeCount>& counts) {
    for (const auto& [result, reason, error, count] : counts) {
      Labels all = labels;
      all.emplace_back("result", to_string(result));
      all.emplace_back("reason", reason ? to_string(*reason) : error ? to_string(*error) : std::string_view());
      sample(all, std::to_string(count));
    }
  }

  void histogram(const Labels& labels, const DurationHistogram& histogram) {
    const auto count = std::to_string(histogram.count);
    for (const auto& bucket : histogram.buckets) {
      const auto bound = seconds(bucket.up_to);
      Labels all = labels;
      all.emplace_back("le", bound);
      sample(all, std::to_string(bucket.count), "_bucket");
    }
    Labels all = labels;
    all.emplace_back("le", "+Inf");
    sample(all, count, "_bucket");
    sample(labels, seconds(histogram.sum), "_sum");
    sample(labels, count, "_count");
  }

  [[nodiscard]] std::string take() { return std::move(text_); }

  static std::string seconds(std::chrono::nanoseconds duration) {
    std::array<char, 64> text{};
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(),
                                            std::chrono::duration<double>(duration).count(), std::chars_format::fixed);
    return {text.data(), end};
  }

 private:
  template <typename... Parts>
  void append(const Parts&... parts) {
    (text_.append(parts), ...);
  }

  void append_escaped(std::string_view value) {
    for (const char character : value) {
      if (character == '\n') {
        text_ += "\\n";
        continue;
      }
      if (character == '\\' || character == '"') text_ += '\\';
      text_ += character;
    }
  }

  std::string text_;
  std::string_view name_;
};

}  // namespace

struct Metrics::State {
  State() : current(new ProcessCounters) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    ProcessCounters* counters = current;
    if (counters->fork_generation == os::fork_generation()) delete counters;  // NOLINT(*-owning-memory)
  }

  // A mutex may have been copied in its locked state, and the parent's leases and connections are not the child's.
  ProcessCounters& counters() {
    ProcessCounters* found = current;
    while (found->fork_generation != os::fork_generation()) {
      auto fresh = std::make_unique<ProcessCounters>();
      if (current.compare_exchange_strong(found, fresh.get())) return *fresh.release();
    }
    return *found;
  }

  std::atomic<ProcessCounters*> current;
};

Metrics::Metrics() : state_(std::make_shared<State>()) {}

std::shared_ptr<detail::BackendCounters> detail::MetricsAccess::counters(const Metrics& metrics,
                                                                         const std::string& backend) {
  ProcessCounters& counters = metrics.state_->counters();
  const std::lock_guard lock(counters.mutex);
  const auto find = [&](std::string_view name) {
    return std::ranges::find_if(counters.backends, [&](const auto& one) { return one->name() == name; });
  };
  auto found = find(backend);
  if (found != counters.backends.end()) return *found;
  const bool is_full = counters.backends.size() >= max_backends;
  const std::string name = is_full ? "other" : backend;
  if (is_full && (found = find(name)) != counters.backends.end()) return *found;
  return counters.backends.emplace_back(std::make_shared<BackendCounters>(name));
}

void detail::MetricsAccess::add_client(const Metrics& metrics, const std::shared_ptr<Client>& client,
                                       std::shared_ptr<BackendCounters> counters) {
  ProcessCounters& process = metrics.state_->counters();
  const std::lock_guard lock(process.mutex);
  std::erase_if(process.clients, [](const auto& one) { return one.client.expired(); });
  process.clients.push_back({client, std::move(counters)});
}

std::vector<BackendMetrics> Metrics::snapshot() const {
  ProcessCounters& process = state_->counters();
  std::vector<std::shared_ptr<detail::BackendCounters>> backends;
  std::vector<ProcessCounters::WatchedClient> clients;
  {
    const std::lock_guard lock(process.mutex);
    backends = process.backends;
    clients = process.clients;
  }
  std::ranges::sort(backends, {}, [](const auto& one) -> const std::string& { return one->name(); });
  std::vector<BackendMetrics> metrics;
  for (const auto& backend : backends) {
    auto& entry = metrics.emplace_back(backend->snapshot());
    for (const auto& [weak, counters] : clients) {
      if (counters != backend) continue;
      const auto client = weak.lock();
      if (!client) continue;
      entry.connections_open += client->backend().connections();
      const auto skew = client->backend().clock_skew();
      if (skew && (!entry.clock_skew || std::chrono::abs(*skew) > std::chrono::abs(*entry.clock_skew))) {
        entry.clock_skew = skew;
      }
    }
  }
  return metrics;
}

std::string Metrics::prometheus() const {
  using Type = PrometheusText::Type;
  const auto backends = snapshot();
  PrometheusText text;
  const auto for_each_backend = [&](const auto& write) {
    for (const auto& backend : backends) write(PrometheusText::Labels{{"backend", backend.backend}}, backend);
  };
  const auto for_each_operation = [&](const auto& write) {
    for_each_backend([&](const PrometheusText::Labels& labels, const BackendMetrics& backend) {
      for (const auto& operation : backend.operations) {
        auto all = labels;
        all.emplace_back("operation", to_string(operation.type));
        write(all, operation);
      }
    });
  };
  const auto gauge = [&](std::string_view name, std::string_view help, auto BackendMetrics::*value) {
    text.metric(name, Type::gauge, help);
    for_each_backend(
        [&](const auto& labels, const auto& backend) { text.sample(labels, std::to_string(backend.*value)); });
  };
  const auto counter = [&](std::string_view name, std::string_view help,
                           std::vector<OutcomeCount> BackendMetrics::*counts) {
    text.metric(name, Type::counter, help);
    for_each_backend([&](const auto& labels, const auto& backend) { text.outcomes(labels, backend.*counts); });
  };
  const auto histogram = [&](std::string_view name, std::string_view help, DurationHistogram BackendMetrics::*values) {
    text.metric(name, Type::histogram, help);
    for_each_backend([&](const auto& labels, const auto& backend) { text.histogram(labels, backend.*values); });
  };

  text.metric("syncguard_operations_total", Type::counter, "Operations on the lock store, by result.");
  for_each_operation([&](const auto& labels, const auto& operation) { text.outcomes(labels, operation.outcomes); });
  text.metric("syncguard_operation_duration_seconds", Type::histogram, "Duration of an operation on the lock store.");
  for_each_operation([&](const auto& labels, const auto& operation) { text.histogram(labels, operation.duration); });
  counter("syncguard_waits_total", "Acquisitions that had to wait, by how the wait ended.", &BackendMetrics::waits);
  histogram("syncguard_wait_duration_seconds", "How long acquisitions that had to wait took.",
            &BackendMetrics::wait_duration);
  counter("syncguard_renewals_total", "Automatic renewals of leases, by result.", &BackendMetrics::renewals);
  counter("syncguard_leases_lost_total", "Leases that were lost before they were released.", &BackendMetrics::losses);
  histogram("syncguard_hold_duration_seconds", "How long leases were held.", &BackendMetrics::hold_duration);
  gauge("syncguard_leases_held", "Leases that are held now.", &BackendMetrics::leases_held);
  gauge("syncguard_callers_waiting", "Callers that wait for a lock now.", &BackendMetrics::callers_waiting);
  gauge("syncguard_connections_open", "Open connections to the lock store.", &BackendMetrics::connections_open);
  text.metric("syncguard_clock_skew_seconds", Type::gauge,
              "How far this host's clock, which decides about expiry, is ahead of the lock store's.");
  for_each_backend([&](const auto& labels, const auto& backend) {
    if (backend.clock_skew) text.sample(labels, PrometheusText::seconds(*backend.clock_skew));
  });
  return text.take();
}

}  // namespace v0_1
}  // namespace syncguard
