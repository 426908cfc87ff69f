// What Metrics cost per operation.

#include "bench.hpp"

#include <atomic>
#include <ctime>
#include <thread>

namespace syncguard::bench {
namespace {

double cpu_nanoseconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e9 + static_cast<double>(used.tv_nsec);
}

// CPU time, because the difference between two runs is much smaller than what other processes take.
double nanoseconds_per_operation(const Locks& locks, int threads, Seconds duration) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(duration);
  std::atomic<double> nanoseconds{0};
  std::atomic<long> operations{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, key = Key("metrics " + std::to_string(t))] {
      const double before = cpu_nanoseconds();
      long cycles = 0;
      do {
        (void)locks.acquire(key);
        ++cycles;
      } while (Clock::now() < end);
      nanoseconds += cpu_nanoseconds() - before;
      operations += 2 * cycles;
    });
  }
  for (auto& worker : workers) worker.join();
  return nanoseconds / static_cast<double>(operations);
}

}  // namespace

void measure_metrics(const Settings& settings, Report& report) {
  if (!settings.url.starts_with("memory")) return;
  constexpr int rounds = 51;
  const std::string group = "cost of Metrics";
  const Metrics metrics;
  const auto counted = open(settings.url, {.metrics = metrics});
  const auto plain = open(settings.url);
  for (const int threads : {1, 4}) {
    std::vector<double> without;
    std::vector<double> differences;
    for (int round = 0; round < rounds; ++round) {
      const Seconds share(settings.seconds / rounds / 2);
      const bool counted_first = round % 2 == 0;
      const double first = nanoseconds_per_operation(counted_first ? counted : plain, threads, share);
      const double second = nanoseconds_per_operation(counted_first ? plain : counted, threads, share);
      without.push_back(counted_first ? second : first);
      differences.push_back(counted_first ? first - second : second - first);
    }
    report.add({.group = group,
                .name = "CPU time per operation, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads"),
                .value = median(differences),
                .unit = "ns",
                .details = {{"nanoseconds_without", median(without)}}});
  }
  constexpr int texts = 100;
  std::size_t bytes = 0;
  const double before = cpu_nanoseconds();
  for (int i = 0; i < texts; ++i) bytes = metrics.prometheus().size();
  report.add({.group = group,
              .name = "CPU time of prometheus()",
              .value = (cpu_nanoseconds() - before) / texts,
              .unit = "ns",
              .details = {{"bytes", bytes}}});
}

}  // namespace syncguard::bench
