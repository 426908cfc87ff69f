// What `./dev demo` shows: workers that fight over one lock, live, and at the end what came of it.

#include <syncguard/syncguard.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sg = syncguard;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

namespace {

constexpr int workers = 6;

struct Turn {
  int worker;
  sg::Fence fence;
  steady_clock::time_point from;
  steady_clock::time_point to;
};

// What the workers recorded, in the order in which they finished.
class Record {
 public:
  void add(const Turn& turn) {
    const std::lock_guard lock(mutex_);
    turns_.push_back(turn);
  }
  std::vector<Turn> by_start() {
    const std::lock_guard lock(mutex_);
    std::ranges::sort(turns_, {}, &Turn::from);
    return turns_;
  }

 private:
  std::mutex mutex_;
  std::vector<Turn> turns_;
};

void show(steady_clock::time_point start, int worker, const sg::Fence& fence) {
  std::string lane(workers, '.');
  lane[static_cast<std::size_t>(worker)] = '#';
  const std::chrono::duration<double> at = steady_clock::now() - start;
  std::printf("  %5.2f s   %s   worker %d holds the lock, fence %s\n", at.count(), lane.c_str(), worker + 1,
              fence.str().c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const auto duration = std::chrono::milliseconds(argc > 1 ? std::atoi(argv[1]) : 1000);
  auto locks = sg::open("memory:");
  Record record;
  std::printf("%d workers want the same lock for %.1f s, each keeps it for 50 ms:\n\n", workers,
              std::chrono::duration<double>(duration).count());

  const auto start = steady_clock::now();
  std::vector<std::thread> threads;
  for (int worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      while (steady_clock::now() - start < duration) {
        locks.with_lock("demo", {.wait = {.timeout = 1min}}, [&](sg::Lease& lease) {
          const auto from = steady_clock::now();
          show(start, worker, lease.fence());
          std::this_thread::sleep_for(50ms);
          record.add({worker, lease.fence(), from, steady_clock::now()});
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();

  const auto turns = record.by_start();
  int overlaps = 0;
  int fences_out_of_order = 0;
  std::vector<int> counts(workers);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    ++counts[static_cast<std::size_t>(turns[i].worker)];
    if (i == 0) continue;
    if (turns[i].from < turns[i - 1].to) ++overlaps;
    if (turns[i].fence <= turns[i - 1].fence) ++fences_out_of_order;
  }
  std::printf("\n  %zu turns, per worker:", turns.size());
  for (const int count : counts) std::printf(" %d", count);
  std::printf("\n  overlaps:             %d\n  fences out of order:  %d\n", overlaps, fences_out_of_order);
  const bool good = overlaps == 0 && fences_out_of_order == 0 && !turns.empty();
  std::puts(good ? "\n  Nobody was ever inside together with somebody else." : "\n  The lock did NOT hold!");
  return good ? 0 : 1;
}
