// Compares the library with a floor that does the same work directly with the store's client library.

#include "bench.hpp"
#include "floor.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace {

constexpr const char* help =
    R"(usage: syncguard_bench [--url URL] [--far-url URL] [--only PART] [--seconds S] [--leases N] [--json FILE]

  --url URL      the backend to measure (memory:bench)
  --far-url URL  the same store, reached through a slow connection, to measure a waiter that is far away
  --only PART    measure only one part: processes, waiters, cycles, scripts, hand-offs, metrics, growth, leases
  --seconds S    duration of each measurement; hand-offs and many waiters take twice as long (5)
  --leases N     number of leases to hold when their cost is measured; a tenth of that waits (100000)
  --json FILE    also write the results to FILE
)";

using namespace syncguard::bench;

struct Part {
  std::string_view name;
  void (*measure)(const Settings& settings, Report& report);
};

// Processes first, because gRPC does not support a fork after its first use.
constexpr Part parts[] = {
    {"processes", measure_contention_of_processes},
    {"waiters", measure_disabled_waiters},
    {"cycles", measure_cycles},
    {"processes", measure_processes},
#ifdef SYNCGUARD_COMMAND
    {"processes", measure_start},
#endif
#ifdef SYNCGUARD_HAS_REDIS
    {"scripts", measure_scripts},
#endif
    {"hand-offs", measure_contention},
    {"waiters", measure_far_waiter},
    {"metrics", measure_metrics},
    {"growth", measure_growth},
    {"leases", measure_held_leases},
};

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  std::string only;
  std::string json;
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string option = argv[i];
      if (option == "--help") {
        std::fputs(help, stdout);
        return 0;
      }
      if (i + 1 == argc) throw std::invalid_argument("unknown option or missing value: " + option);
      const std::string value = argv[++i];
      if (option == "--url") {
        settings.url = value;
      } else if (option == "--far-url") {
        settings.far_url = value;
      } else if (option == "--only") {
        only = value;
        if (std::ranges::find(parts, only, &Part::name) == std::end(parts)) {
          throw std::invalid_argument("unknown part: " + only);
        }
      } else if (option == "--seconds") {
        settings.seconds = std::stod(value);
      } else if (option == "--leases") {
        settings.leases = std::stoi(value);
      } else if (option == "--json") {
        json = value;
      } else {
        throw std::invalid_argument("unknown option: " + option);
      }
    }
    if (settings.seconds <= 0 || settings.leases <= 0) throw std::invalid_argument("numbers must be positive");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "syncguard_bench: %s\n\n%s", error.what(), help);
    return 2;
  }
  try {
    set_up(settings);
    Report report;
    for (const auto& part : parts) {
      if (only.empty() || only == part.name) part.measure(settings, report);
    }
    if (!json.empty()) report.write_json(json, settings.url);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "syncguard_bench: %s\n", error.what());
    return 1;
  }
}
