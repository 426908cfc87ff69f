// Compares the library with a floor that does the same work directly with the store's client library.

#include "bench.hpp"
#include "floor.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

namespace {

constexpr const char* help = R"(usage: syncguard_bench [--url URL] [--seconds S] [--leases N] [--json FILE]

  --url URL      the backend to measure (memory:bench)
  --seconds S    duration of each measurement; hand-offs take twice as long (5)
  --leases N     number of leases to hold when their cost is measured; a tenth of that waits (100000)
  --json FILE    also write the results to FILE
)";

}  // namespace

int main(int argc, char** argv) {
  using namespace syncguard::bench;
  Settings settings;
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
    measure_contention_of_processes(settings, report);
    measure_cycles(settings, report);
    measure_processes(settings, report);
#ifdef SYNCGUARD_HAS_REDIS
    if (settings.url.starts_with("redis")) measure_scripts(settings, report);
#endif
    measure_contention(settings, report);
    if (settings.url.starts_with("memory")) measure_metrics(settings, report);
    measure_growth(settings, report);
    measure_held_leases(settings, report);
    if (!json.empty()) report.write_json(json, settings.url);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "syncguard_bench: %s\n", error.what());
    return 1;
  }
}
