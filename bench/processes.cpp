// Acquire and release in several processes at the same time, each with its own key.

#include "bench.hpp"
#include "floor.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <thread>

namespace syncguard::bench {
namespace {

// Connects, waits for the common start time, and counts cycles.
template <typename MakeCycle>
long count_cycles(const Key& key, Clock::time_point start, Clock::time_point end, const MakeCycle& make_cycle) {
  const std::function<void()> cycle = make_cycle(key);
  cycle();
  std::this_thread::sleep_until(start);
  long cycles = 0;
  for (; Clock::now() < end; ++cycles) cycle();
  return cycles;
}

template <typename MakeCycle>
double run_processes(int processes, Seconds duration, const MakeCycle& make_cycle) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const auto start = Clock::now() + 300ms;
  const auto end = start + std::chrono::duration_cast<Clock::duration>(duration);
  for (int i = 0; i < processes; ++i) {
    if (fork() != 0) continue;
    try {
      const long cycles = count_cycles(Key("process " + std::to_string(i)), start, end, make_cycle);
      if (write(ends[1], &cycles, sizeof cycles) != sizeof cycles) throw std::runtime_error("cannot report");
    } catch (const std::exception& error) {
      std::fprintf(stderr, "worker: %s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  long total = 0;
  int reports = 0;
  for (long cycles = 0; read(ends[0], &cycles, sizeof cycles) == sizeof cycles; ++reports) total += cycles;
  close(ends[0]);
  while (wait(nullptr) > 0) {
  }
  if (reports != processes) throw std::runtime_error("a worker process failed");
  return static_cast<double>(total) / duration.count();
}

}  // namespace

void measure_processes(const Settings& settings, Report& report) {
  const auto floor = floor_of(settings);
  if (!floor) return;
  for (const int processes : floor->processes) {
    const auto library = [&](const Key& key) -> std::function<void()> {
      return [locks = open(settings.url), key]() mutable { (void)locks.acquire(key); };
    };
    const auto result = compare(
        settings, [&](Seconds duration) { return run_processes(processes, duration, library); },
        [&](Seconds duration) { return run_processes(processes, duration, floor->make_caller); });
    report.add({.group = "acquire + release, uncontended (floor: " + floor->name + ")",
                .name = std::to_string(processes) + " processes",
                .value = result.library,
                .unit = "cycles/s",
                .floor = result.floor,
                .ratio = result.ratio});
  }
}

}  // namespace syncguard::bench
