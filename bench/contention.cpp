// Hand-off under contention: workers compete for one key and hold it for a millisecond.

#include "bench.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

namespace syncguard::bench {
namespace {

// The times of one turn, on a clock that is the same for all processes of the machine.
struct Turn {
  std::uint64_t fence;
  Clock::time_point asked;
  Clock::time_point entered;
  Clock::time_point left;
};

struct Worker {
  std::vector<Turn> turns;
  std::int64_t time_outs = 0;
};

Worker contend(Locks locks, const Key& key, Clock::time_point end) {
  const AcquireOptions options{.wait = {.timeout = 5s, .max_retries = WaitOptions::unlimited_retries}};
  Worker worker;
  for (;;) {
    const auto asked = Clock::now();
    if (asked >= end) return worker;
    try {
      const Lease lease = locks.acquire(key, options);
      const auto entered = Clock::now();
      std::this_thread::sleep_for(1ms);
      worker.turns.push_back({lease.fence().value(), asked, entered, Clock::now()});
    } catch (const LockError& error) {
      if (error.code() != ErrorCode::acquisition_timeout) throw;
      ++worker.time_outs;
    }
  }
}

std::vector<Worker> run_threads(int workers, const Key& key, Clock::time_point end,
                                const std::function<Locks()>& client) {
  std::vector<Worker> results(static_cast<std::size_t>(workers));
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&, locks = client()] { result = contend(locks, key, end); });
  }
  for (auto& thread : threads) thread.join();
  return results;
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

void write_to(std::FILE* file, const Worker& worker) {
  std::fwrite(&worker.time_outs, sizeof worker.time_outs, 1, file);
  std::fwrite(worker.turns.data(), sizeof(Turn), worker.turns.size(), file);
  if (std::fflush(file) != 0) throw std::runtime_error("a worker process cannot report");
}

Worker read_from(std::FILE* file) {
  Worker worker;
  std::rewind(file);
  if (std::fread(&worker.time_outs, sizeof worker.time_outs, 1, file) != 1) {
    throw std::runtime_error("a worker process failed");
  }
  for (Turn turn{}; std::fread(&turn, sizeof turn, 1, file) == 1;) worker.turns.push_back(turn);
  return worker;
}

std::vector<Worker> run_processes(int workers, const Key& key, Clock::time_point end, const std::string& url) {
  std::vector<File> files;
  std::vector<pid_t> children;
  for (int i = 0; i < workers; ++i) {
    files.emplace_back(std::tmpfile(), std::fclose);
    if (!files.back()) throw std::runtime_error("no temporary file");
    children.push_back(fork());
    if (children.back() == 0) {
      try {
        write_to(files.back().get(), contend(open(url), key, end));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "worker: %s\n", error.what());
      }
      _exit(0);
    }
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  std::vector<Worker> results;
  for (const auto& file : files) results.push_back(read_from(file.get()));
  return results;
}

// How often a turn began before the turn with the next lower fence had ended, or had the same fence.
long count_violations(const std::vector<Worker>& workers) {
  std::vector<Turn> all;
  for (const auto& worker : workers) all.insert(all.end(), worker.turns.begin(), worker.turns.end());
  std::ranges::sort(all, {}, &Turn::fence);
  long violations = 0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].fence == all[i - 1].fence || all[i].entered < all[i - 1].left) ++violations;
  }
  return violations;
}

// Firestore is not designed for more contention on one document.
std::vector<int> worker_counts(const Settings& settings) {
  return settings.url.starts_with("firestore:") ? std::vector<int>{4} : std::vector<int>{8, 64};
}

template <typename Run>
Row run_contention(const std::string& name, const Settings& settings, Run run) {
  const auto start = Clock::now();
  const auto length = std::chrono::duration_cast<Clock::duration>(Seconds(2 * settings.seconds));
  const std::vector<Worker> workers = run(Key("contested " + name), start + length);
  const double seconds = Seconds(Clock::now() - start).count();

  double turns = 0;
  double squares = 0;
  std::int64_t time_outs = 0;
  Clock::duration longest{};
  for (const auto& worker : workers) {
    const auto count = static_cast<double>(worker.turns.size());
    turns += count;
    squares += count * count;
    time_outs += worker.time_outs;
    for (const auto& turn : worker.turns) {
      // Ignores the warm-up.
      if (turn.asked >= start + length / 10) longest = std::max(longest, turn.entered - turn.asked);
    }
  }
  const auto count = static_cast<double>(workers.size());
  return {.group = "hand-off under contention, 1 ms inside",
          .name = name,
          .value = turns / seconds,
          .unit = "turns/s",
          .details = {{"jain", squares == 0 ? 0 : turns * turns / (count * squares)},
                      {"longest_wait_ms", Seconds(longest).count() * 1e3},
                      {"time_outs", time_outs},
                      {"violations", count_violations(workers)}}};
}

}  // namespace

void measure_contention_of_processes(const Settings& settings, Report& report) {
  // Processes cannot share a memory store.
  if (settings.url.starts_with("memory:")) return;
  for (const int workers : worker_counts(settings)) {
    const auto run = [&](const Key& key, Clock::time_point end) {
      return run_processes(workers, key, end, settings.url);
    };
    // The Firestore emulator is a Java program, which is slow at first.
    if (settings.url.starts_with("firestore:")) (void)run_contention("warming up", settings, run);
    report.add(run_contention(std::to_string(workers) + " processes", settings, run));
  }
}

void measure_contention(const Settings& settings, Report& report) {
  for (const int workers : worker_counts(settings)) {
    const auto count_text = std::to_string(workers);
    {
      auto shared = open(settings.url);
      report.add(
          run_contention(count_text + " threads of one client", settings, [&](const Key& key, Clock::time_point end) {
            return run_threads(workers, key, end, [&] { return shared; });
          }));
    }
    report.add(run_contention(count_text + " clients", settings, [&](const Key& key, Clock::time_point end) {
      return run_threads(workers, key, end, [&] { return open(settings.url); });
    }));
  }
}

}  // namespace syncguard::bench
