// How the cost of an operation grows with the number of held keys, the number of waiters and the length of keys.

#include "bench.hpp"

#include <thread>

namespace syncguard::bench {
namespace {

double microseconds_per_cycle(Locks& locks, const Key& key, double seconds) {
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  long cycles = 0;
  for (; Clock::now() < end; ++cycles) (void)locks.acquire(key);
  return Seconds(Clock::now() - start).count() * 1e6 / static_cast<double>(cycles);
}

}  // namespace

void measure_growth(const Settings& settings, Report& report) {
  const double share = settings.seconds / 5;
  for (const int held : {1, 10, 100, 1000, 10'000}) {
    if (held > settings.leases) break;
    auto locks = open(settings.url);
    std::vector<Lease> leases;
    for (int i = 0; i < held; ++i) leases.push_back(locks.acquire("held " + std::to_string(i), {.ttl = 10min}));
    report.add({.group = "growth: a blocking cycle with other keys held",
                .name = std::to_string(held) + " held",
                .value = microseconds_per_cycle(locks, "free", share),
                .unit = "us"});
  }
  for (const int waiters : {1, 8, 64, 512}) {
    auto locks = open(settings.url);
    const AcquireOptions patient{
        .wait = {.timeout = 10min, .max_retries = WaitOptions::unlimited_retries, .retry_delay = 10s}};
    std::atomic<long> turns{0};
    std::atomic<bool> stop{false};
    std::function<void()> queue = [&] {
      locks.async_acquire("contested", patient, [&](const std::exception_ptr& error, const Lease&) {
        if (error) return;
        ++turns;
        if (!stop) queue();
      });
    };
    const auto start = Clock::now();
    for (int i = 0; i < waiters + 1; ++i) queue();
    std::this_thread::sleep_for(Seconds(share));
    const double seconds = Seconds(Clock::now() - start).count();
    const long count = turns;
    stop = true;
    locks.close();
    report.add({.group = "growth: a hand-off with more waiters on the key",
                .name = std::to_string(waiters) + " waiters",
                .value = seconds * 1e6 / static_cast<double>(std::max(count, 1L)),
                .unit = "us"});
  }
  for (const std::size_t length : {8U, 64U, 512U}) {
    auto locks = open(settings.url);
    report.add({.group = "growth: a blocking cycle with longer keys",
                .name = std::to_string(length) + " bytes",
                .value = microseconds_per_cycle(locks, std::string(length, 'k'), share),
                .unit = "us"});
  }
}

}  // namespace syncguard::bench
