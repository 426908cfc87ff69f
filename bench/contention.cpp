// Hand-off under contention: workers that want one key and keep it for a millisecond.

#include "bench.hpp"

#include <syncguard/fence_gate.hpp>

#include <atomic>
#include <functional>
#include <thread>

namespace syncguard::bench {
namespace {

struct Worker {
  long turns = 0;
  long time_outs = 0;
  Clock::duration longest_wait{};
};

void contend(Locks locks, const Key& key, Clock::time_point warm, Clock::time_point end, FenceGate& gate,
             std::atomic<long>& violations, Worker& worker) {
  const AcquireOptions options{.wait = {.timeout = 5s, .max_retries = WaitOptions::unlimited_retries}};
  for (;;) {
    const auto start = Clock::now();
    if (start >= end) return;
    try {
      const Lease lease = locks.acquire(key, options);
      if (start >= warm) worker.longest_wait = std::max(worker.longest_wait, Clock::now() - start);
      if (!gate.admit(key, lease.fence())) ++violations;
      std::this_thread::sleep_for(1ms);
      ++worker.turns;
    } catch (const LockError& error) {
      if (error.code() != ErrorCode::acquisition_timeout) throw;
      ++worker.time_outs;
    }
  }
}

Row contest(const std::string& name, int workers, const Settings& settings, const std::function<Locks()>& client) {
  const auto start = Clock::now();
  const auto length = std::chrono::duration_cast<Clock::duration>(Seconds(2 * settings.seconds));
  const Key key("contested " + name);
  FenceGate gate;
  std::atomic<long> violations{0};
  std::vector<Worker> results(static_cast<std::size_t>(workers));
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back(
        [&, locks = client()] { contend(locks, key, start + length / 10, start + length, gate, violations, result); });
  }
  for (auto& thread : threads) thread.join();
  const double seconds = Seconds(Clock::now() - start).count();

  double turns = 0;
  double squares = 0;
  long time_outs = 0;
  Clock::duration longest{};
  for (const auto& result : results) {
    turns += static_cast<double>(result.turns);
    squares += static_cast<double>(result.turns) * static_cast<double>(result.turns);
    time_outs += result.time_outs;
    longest = std::max(longest, result.longest_wait);
  }
  return {.group = "hand-off under contention, 1 ms inside",
          .name = name,
          .value = turns / seconds,
          .unit = "turns/s",
          .details = {{"jain", squares == 0 ? 0 : turns * turns / (workers * squares)},
                      {"longest_wait_ms", Seconds(longest).count() * 1e3},
                      {"time_outs", time_outs},
                      {"fence_violations", violations.load()}}};
}

}  // namespace

void measure_contention(const Settings& settings, Report& report) {
  for (const int workers : {8, 64}) {
    auto shared = open(settings.url);
    report.add(contest(std::to_string(workers) + " threads of one client", workers, settings, [&] { return shared; }));
    report.add(contest(std::to_string(workers) + " clients", workers, settings, [&] { return open(settings.url); }));
  }
}

}  // namespace syncguard::bench
