// Telemetry as Prometheus reads it: how many operations ended how, and how long they took. Serve Metrics::text() at
// /metrics with whatever HTTP server your program has.

#include <syncguard/syncguard.hpp>

#include <array>
#include <cstdio>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <tuple>

namespace sg = syncguard;
using namespace std::chrono_literals;

namespace {

// Keys and lock ids are no labels: each value would be a time series of its own, and they may be secrets.
class Metrics {
 public:
  void count(const sg::LockEvent& event) {
    const std::string type(to_string(event.type));
    const std::string result(to_string(event.result));
    std::string reason;
    if (event.reason) reason = to_string(*event.reason);
    if (event.error) reason = to_string(*event.error);
    const double seconds = std::chrono::duration<double>(event.duration).count();

    const std::lock_guard guard(mutex_);
    ++operations_[{type, result, reason}];
    dropped_ += event.dropped_before;
    Durations& durations = durations_[type];
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      if (seconds <= bounds.at(i)) ++durations.buckets.at(i);
    }
    ++durations.count;
    durations.sum += seconds;
  }

  [[nodiscard]] std::string text() const {
    const std::lock_guard guard(mutex_);
    std::ostringstream out;
    out << "# HELP syncguard_operations_total Operations on locks, by what came of them.\n"
        << "# TYPE syncguard_operations_total counter\n";
    for (const auto& [labels, count] : operations_) {
      const auto& [type, result, reason] = labels;
      out << "syncguard_operations_total{type=\"" << type << "\",result=\"" << result << "\",reason=\"" << reason
          << "\"} " << count << "\n";
    }
    out << "# HELP syncguard_operation_duration_seconds How long one operation took.\n"
        << "# TYPE syncguard_operation_duration_seconds histogram\n";
    for (const auto& [type, durations] : durations_) {
      const std::string name = "syncguard_operation_duration_seconds";
      for (std::size_t i = 0; i < bounds.size(); ++i) {
        out << name << "_bucket{type=\"" << type << "\",le=\"" << bounds.at(i) << "\"} " << durations.buckets.at(i)
            << "\n";
      }
      out << name << "_bucket{type=\"" << type << "\",le=\"+Inf\"} " << durations.count << "\n"
          << name << "_sum{type=\"" << type << "\"} " << durations.sum << "\n"
          << name << "_count{type=\"" << type << "\"} " << durations.count << "\n";
    }
    out << "# HELP syncguard_events_dropped_total Events that found telemetry's queue full.\n"
        << "# TYPE syncguard_events_dropped_total counter\n"
        << "syncguard_events_dropped_total " << dropped_ << "\n";
    return out.str();
  }

 private:
  // In seconds.
  static constexpr std::array<double, 6> bounds{0.0005, 0.001, 0.005, 0.025, 0.1, 1};
  struct Durations {
    std::array<std::uint64_t, bounds.size()> buckets{};
    std::uint64_t count = 0;
    double sum = 0;
  };

  mutable std::mutex mutex_;  // events come on a thread of telemetry's own
  std::map<std::tuple<std::string, std::string, std::string>, std::uint64_t> operations_;
  std::map<std::string, Durations> durations_;
  std::uint64_t dropped_ = 0;
};

}  // namespace

int main() {
  Metrics metrics;
  sg::ClientOptions options;
  options.telemetry = sg::TelemetryOptions{.on_event = [&](const sg::LockEvent& event) { metrics.count(event); }};
  auto locks = sg::open("memory:", options);

  for (int i = 0; i < 10; ++i) locks.with_lock("report", {}, [] {});
  {
    const sg::Lease lease = locks.acquire("report");
    if (locks.try_acquire("report")) return 1;
  }
  if (locks.release(sg::LockId::generate())) return 1;

  locks.close();  // waits for the events that are still queued
  std::fputs(metrics.text().c_str(), stdout);
}
