// What the parts of the benchmark share.
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
  // How long one figure is measured.
  double seconds = 5;
  // How many leases are held at once where their cost is measured.
  int leases = 100'000;
};

inline std::unique_ptr<Backend> backend_of(const Settings& settings) {
  BackendUrl url(settings.url);
  return make_backend(url);
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Compared {
  double library;
  double floor;
  double ratio;
};

// Runs library and floor alternately, and compares neighbours, since machines are noisy and disks have their moods.
// Both get a duration and return a rate.
template <typename Library, typename Floor>
Compared compare(const Settings& settings, Library library, Floor floor) {
  constexpr int rounds = 11;
  const Seconds share(settings.seconds / rounds);
  std::vector<double> of_library;
  std::vector<double> of_floor;
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    // Whoever comes second finds a machine that the first has left behind.
    if (round % 2 == 0) of_library.push_back(library(share));
    of_floor.push_back(floor(share));
    if (round % 2 != 0) of_library.push_back(library(share));
    ratios.push_back(of_library.back() / of_floor.back());
  }
  return {median(of_library), median(of_floor), median(ratios)};
}

// The parts, in the order in which they run.
// First, because gRPC does not follow a fork.
void measure_contention_of_processes(const Settings& settings, Report& report);
void measure_cycles(const Settings& settings, Report& report);
// Only where the floor says with how many.
void measure_processes(const Settings& settings, Report& report);
void measure_contention(const Settings& settings, Report& report);
// What the server itself needs; only for Redis.
void measure_scripts(const Settings& settings, Report& report);
void measure_growth(const Settings& settings, Report& report);
void measure_held_leases(const Settings& settings, Report& report);

}  // namespace syncguard::bench
