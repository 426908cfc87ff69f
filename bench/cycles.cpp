// Repeated acquire and release without contention.

#include "bench.hpp"
#include "floor.hpp"

#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <iterator>
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
    const AcquireRequest request{.key = key, .lock_id = LockId::generate(), .ttl = 30s, .holder = "bench/1"};
    const CallLimits limits{{}, Clock::now() + 2s};
    co_await backend.acquire(request, limits);
    co_await backend.release(request.lock_id, limits);
    ++cycles;
  }
}

// Runs `in_flight` coroutines on one thread, each with its own key.
template <typename Cycle>
double run_coroutines(int in_flight, Seconds duration, asio::io_context& context, Cycle cycle) {
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(duration);
  std::vector<long> cycles(static_cast<std::size_t>(in_flight));
  // A backend reads from its connection until it is closed, so the context never runs out of work.
  int running = in_flight;
  const auto ended = [&](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
    if (--running == 0) context.stop();
  };
  for (int i = 0; i < in_flight; ++i) {
    asio::co_spawn(context, cycle(Key("cycle " + std::to_string(i)), end, cycles[static_cast<std::size_t>(i)]), ended);
  }
  context.restart();
  context.run();
  long total = 0;
  for (const long count : cycles) total += count;
  return rate(total, start);
}

// Runs `threads` threads, each with its own key and its own result of make_cycle.
template <typename MakeCycle>
double run_threads(int threads, Seconds duration, MakeCycle make_cycle) {
  std::vector<std::function<void()>> cycles;
  for (int t = 0; t < threads; ++t) cycles.push_back(make_cycle(Key("cycle " + std::to_string(t))));
  // The first cycle of a new connection takes longer, because the server prepares its functions.
  for (const auto& cycle : cycles) cycle();
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(duration);
  std::atomic<long> total{0};
  std::vector<std::thread> workers;
  for (const auto& cycle : cycles) {
    workers.emplace_back([&] {
      long mine = 0;
      for (; Clock::now() < end; ++mine) cycle();
      total += mine;
    });
  }
  for (auto& worker : workers) worker.join();
  return rate(total, start);
}

double run_blocking_threads(const Locks& locks, int threads, Seconds duration) {
  return run_threads(threads, duration, [&](const Key& key) -> std::function<void()> {
    return [client = Locks(locks), key]() mutable { (void)client.acquire(key); };
  });
}

}  // namespace

void measure_cycles(const Settings& settings, Report& report) {
  constexpr int in_flight_rows[] = {1, 32, 256};
  asio::io_context context;
  auto locks = open_on(context.get_executor(), settings.url);
  const auto backend = backend_of(settings);
  const auto floor = floor_of(settings);
  const std::vector<int> thread_rows = floor ? floor->callers : std::vector<int>{1, 32};
  const int max_threads = thread_rows.back();

  const auto library_in_flight = [&](int in_flight) {
    return [&, in_flight](Seconds duration) {
      return run_coroutines(in_flight, duration, context, [&](Key key, Clock::time_point end, long& cycles) {
        return cycle_library(locks, std::move(key), end, cycles);
      });
    };
  };
  const auto backend_in_flight = [&](int in_flight) {
    return [&, in_flight](Seconds duration) {
      return run_coroutines(in_flight, duration, context, [&](Key key, Clock::time_point end, long& cycles) {
        return cycle_backend(*backend, std::move(key), end, cycles);
      });
    };
  };
  const auto add = [&](const std::string& group, const std::string& name, const Compared& result) {
    report.add({.group = group,
                .name = name,
                .value = result.library,
                .unit = "cycles/s",
                .floor = result.floor,
                .ratio = result.ratio,
                .details = {{"microseconds_above_the_floor", 1e6 / result.library - 1e6 / result.floor}}});
  };

  const std::string above_backend = "acquire + release, uncontended (floor: the backend's own coroutines)";
  for (const int in_flight : in_flight_rows) {
    add(above_backend, std::to_string(in_flight) + " in flight, asynchronous",
        compare(settings, library_in_flight(in_flight), backend_in_flight(in_flight)));
  }
  const auto group = floor ? "acquire + release, uncontended (floor: " + floor->name + ")" : above_backend;
  const auto floor_with = [&](int threads) -> std::function<double(Seconds)> {
    if (!floor) return backend_in_flight(1);
    return [&, threads](Seconds duration) { return run_threads(threads, duration, floor->make_caller); };
  };
  auto blocking = open(settings.url);
  for (const int threads : thread_rows) {
    add(group, std::to_string(threads) + (threads == 1 ? " blocking caller" : " blocking threads, one client"),
        compare(
            settings, [&](Seconds duration) { return run_blocking_threads(blocking, threads, duration); },
            floor_with(threads)));
  }
  if (floor) {
    const int in_flight = *std::rbegin(in_flight_rows);
    add(group,
        std::to_string(in_flight) + " in flight, one client, floor of " + std::to_string(max_threads) + " threads",
        compare(settings, library_in_flight(in_flight), floor_with(max_threads)));
  }
  locks.async_close([&](const std::exception_ptr&, bool) { context.stop(); });
  context.restart();
  context.run();
}

}  // namespace syncguard::bench
