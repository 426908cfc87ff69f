// Shared by the parts of the benchmark.
#pragma once

#include "report.hpp"

#include <syncguard/async.hpp>
#include <syncguard/backend.hpp>
#include <syncguard/registry.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace syncguard::bench {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

struct Settings {
  std::string url = "memory:bench";
  // Leads to the same store, but takes longer; empty if there is none.
  std::string far_url{};
  // The duration of one measurement.
  double seconds = 5;
  // How many leases are held to measure their cost.
  int leases = 100'000;
};

inline std::unique_ptr<Backend> backend_of(const Settings& settings) {
  BackendUrl url(settings.url);
  const auto timeout = url.take_duration("operation_timeout");
  return make_backend(url, {.operation_timeout = timeout});
}

// The memory that this process has allocated. Not the resident memory, which also counts what was freed.
double allocated_bytes();

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Compared {
  double library;
  double floor;
  double ratio;
};

// Runs library and floor alternately, and compares adjacent runs, because the speed of machines and disks varies. Both
// functions get a duration and return a rate, or another measured value.
template <typename Library, typename Floor>
Compared compare(const Settings& settings, Library library, Floor floor, int rounds = 11) {
  const Seconds share(settings.seconds / rounds);
  std::vector<double> of_library;
  std::vector<double> of_floor;
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    // The order changes in each round, because the first run affects the machine's state for the second.
    if (round % 2 == 0) of_library.push_back(library(share));
    of_floor.push_back(floor(share));
    if (round % 2 != 0) of_library.push_back(library(share));
    ratios.push_back(of_library.back() / of_floor.back());
  }
  return {median(of_library), median(of_floor), median(ratios)};
}

void measure_contention_of_processes(const Settings& settings, Report& report);
void measure_disabled_waiters(const Settings& settings, Report& report);
// Only with a far_url.
void measure_far_waiter(const Settings& settings, Report& report);
// Only for SQLite.
void measure_start(const Settings& settings, Report& report);
// Only for backends whose floor lists numbers of processes.
void measure_processes(const Settings& settings, Report& report);
void measure_cycles(const Settings& settings, Report& report);
// The time of scripts on the server; only for Redis.
void measure_scripts(const Settings& settings, Report& report);
void measure_contention(const Settings& settings, Report& report);
// Only for the memory backend: elsewhere the cost is within the noise.
void measure_metrics(const Settings& settings, Report& report);
void measure_growth(const Settings& settings, Report& report);
void measure_held_leases(const Settings& settings, Report& report);

}  // namespace syncguard::bench
