// The cost of leases while they are held.

#include "bench.hpp"
#include "held_keys.hpp"

#include <malloc.h>

#include <ctime>
#include <thread>

namespace syncguard::bench {

double allocated_bytes() {
  const auto memory = mallinfo2();
  return static_cast<double>(memory.uordblks) + static_cast<double>(memory.hblkhd);
}

namespace {

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

}  // namespace

void measure_held_leases(const Settings& settings, Report& report) {
  const std::string group = "leases that are held";
  {
    auto locks = open(settings.url);
    HeldKeys held(locks, "held");
    held.grow_to(1);
    const double before = allocated_bytes();
    held.grow_to(static_cast<std::size_t>(settings.leases));
    report.add({.group = group,
                .name = std::to_string(settings.leases) + " held, memory each",
                .value = (allocated_bytes() - before) / settings.leases,
                .unit = "bytes"});
  }
  {
    const int renewed = std::max(1, settings.leases / 10);
    auto locks = open(settings.url);
    // The ttl is three times the measured period, so that each lease is renewed once in it.
    const auto ttl =
        std::chrono::duration_cast<std::chrono::milliseconds>(Seconds(std::max(0.3, 3 * settings.seconds)));
    // One after the other, so that their renewals are spread over time, too.
    std::vector<Lease> leases;
    for (int i = 0; i < renewed; ++i) {
      leases.push_back(locks.acquire("renewed " + std::to_string(i), {.ttl = ttl, .auto_extend = true}));
    }
    const double before = cpu_seconds();
    std::this_thread::sleep_for(Seconds(std::max(0.1, settings.seconds)));
    const double per_renewal = (cpu_seconds() - before) / renewed;
    // A lease with a ttl of 30 s is renewed every ten seconds.
    report.add({.group = group,
                .name = std::to_string(renewed) + " renewing, ttl 30 s, CPU of a core",
                .value = per_renewal * renewed / 10 * 100,
                .unit = "percent",
                .details = {{"microseconds_per_renewal", per_renewal * 1e6}}});
  }
}

}  // namespace syncguard::bench
