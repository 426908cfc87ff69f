// Acquire and release, over and over, on keys that nobody contends.

#include "bench.hpp"

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <thread>

namespace syncguard::bench {
namespace {

double rate(long cycles, Clock::time_point start) {
  return static_cast<double>(cycles) / Seconds(Clock::now() - start).count();
}

asio::awaitable<void> cycle_library(Locks& locks, Key key, Clock::time_point end, long& cycles) {
  while (Clock::now() < end) {
    Lease lease = co_await locks.async_acquire(key, {}, asio::use_awaitable);
    co_await lease.async_release(asio::use_awaitable);
    ++cycles;
  }
}

asio::awaitable<void> cycle_backend(Backend& backend, Key key, Clock::time_point end, long& cycles) {
  while (Clock::now() < end) {
    const AcquireRequest request{key, LockId::generate(), 30s};
    const CallLimits limits{{}, Clock::now() + 2s};
    co_await backend.acquire(request, limits);
    co_await backend.release(request.lock_id, limits);
    ++cycles;
  }
}

// So many coroutines of one thread, each with a key of its own.
template <typename Cycle>
double run_coroutines(int in_flight, Seconds duration, asio::io_context& context, Cycle cycle) {
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(duration);
  std::vector<long> cycles(static_cast<std::size_t>(in_flight));
  for (int i = 0; i < in_flight; ++i) {
    asio::co_spawn(context, cycle(Key("cycle " + std::to_string(i)), end, cycles[static_cast<std::size_t>(i)]),
                   asio::detached);
  }
  context.restart();
  context.run();
  long total = 0;
  for (const long count : cycles) total += count;
  return rate(total, start);
}

double run_blocking_threads(Locks locks, int threads, Seconds duration) {
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(duration);
  std::atomic<long> cycles{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      const Key key("cycle " + std::to_string(t));
      long mine = 0;
      for (; Clock::now() < end; ++mine) (void)locks.acquire(key);
      cycles += mine;
    });
  }
  for (auto& worker : workers) worker.join();
  return rate(cycles, start);
}

}  // namespace

void measure_cycles(const Settings& settings, Report& report) {
  const std::string group = "acquire + release, uncontended (floor: the backend's own coroutines)";
  asio::io_context context;
  auto locks = open_on(context.get_executor(), settings.url);
  const auto backend = backend_of(settings);

  for (const int in_flight : {1, 256}) {
    const auto result = compare(
        settings,
        [&](Seconds duration) {
          return run_coroutines(in_flight, duration, context, [&](Key key, Clock::time_point end, long& cycles) {
            return cycle_library(locks, std::move(key), end, cycles);
          });
        },
        [&](Seconds duration) {
          return run_coroutines(in_flight, duration, context, [&](Key key, Clock::time_point end, long& cycles) {
            return cycle_backend(*backend, std::move(key), end, cycles);
          });
        });
    report.add({.group = group,
                .name = std::to_string(in_flight) + " in flight, asynchronous",
                .value = result.library,
                .unit = "cycles/s",
                .floor = result.floor,
                .ratio = result.library / result.floor,
                .details = {{"microseconds_above_the_backend", 1e6 / result.library - 1e6 / result.floor}}});
  }

  auto blocking = open(settings.url);
  for (const int threads : {1, 32}) {
    const auto result = compare(
        settings, [&](Seconds duration) { return run_blocking_threads(blocking, threads, duration); },
        [&](Seconds duration) {
          return run_coroutines(1, duration, context, [&](Key key, Clock::time_point end, long& cycles) {
            return cycle_backend(*backend, std::move(key), end, cycles);
          });
        });
    report.add({.group = group,
                .name = std::to_string(threads) + (threads == 1 ? " blocking caller" : " blocking threads, one client"),
                .value = result.library,
                .unit = "cycles/s",
                .floor = result.floor,
                .ratio = result.library / result.floor});
  }
  locks.async_close([](const std::exception_ptr&, bool) {});
  context.restart();
  context.run();
}

}  // namespace syncguard::bench
