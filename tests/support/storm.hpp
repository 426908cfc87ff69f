// Processes compete for one lock while the test kills them or restarts their server.
#pragma once

#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/fork_when_idle.hpp"

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {

// Shared memory of the processes: what they record survives their death.
struct Evidence {
  static constexpr int max_workers = 64;
  std::atomic<std::uint64_t> newest_fence{0};
  std::atomic<int> inside{-1};
  std::array<std::atomic<bool>, max_workers> killed{};
  std::array<std::atomic<std::int64_t>, max_workers> holds_until{};  // see ticks()
  std::array<std::atomic<int>, max_workers> turns_of{};
  std::atomic<int> overlaps{0};
  std::atomic<int> fences_out_of_order{0};
  std::atomic<int> turns{0};
  std::atomic<int> failures{0};
  std::atomic<std::chrono::milliseconds> slowest_operation{};
};

class SharedEvidence {
 public:
  SharedEvidence()
      : memory_(mmap(nullptr, sizeof(Evidence), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::runtime_error("no shared memory");
    evidence_ = new (memory_) Evidence;
  }
  SharedEvidence(const SharedEvidence&) = delete;
  SharedEvidence& operator=(const SharedEvidence&) = delete;
  ~SharedEvidence() { munmap(memory_, sizeof(Evidence)); }

  Evidence* operator->() const noexcept { return evidence_; }
  Evidence& operator*() const noexcept { return *evidence_; }

 private:
  void* memory_;
  Evidence* evidence_;
};

// How long a storm lasts. SYNCGUARD_STORM_SECONDS overrides the usual duration.
inline std::chrono::seconds storm_length(std::chrono::seconds usual) {
  const char* chosen = std::getenv("SYNCGUARD_STORM_SECONDS");
  return chosen != nullptr ? std::chrono::seconds(std::atoi(chosen)) : usual;
}

inline std::int64_t ticks() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// Records one critical section.
inline void take_turn(const Lease& lease, int worker, Evidence& evidence) {
  const auto fence = lease.fence().value();
  evidence.holds_until[static_cast<std::size_t>(worker)] =
      ticks() + std::chrono::steady_clock::duration(lease.remaining()).count();
  const int before = evidence.inside.exchange(worker);
  const auto newest = evidence.newest_fence.exchange(fence);
  // A holder whose lease has already ended, because its process was delayed, does not count as an overlap.
  if (lease.remaining() > std::chrono::milliseconds(0)) {
    const auto other = static_cast<std::size_t>(std::max(before, 0));
    if (before >= 0 && !evidence.killed[other] && evidence.holds_until[other] > ticks()) ++evidence.overlaps;
    if (newest >= fence) ++evidence.fences_out_of_order;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ++evidence.turns;
  ++evidence.turns_of[static_cast<std::size_t>(worker)];
  evidence.inside = -1;
}

// The main loop of a worker process, until it is killed.
[[noreturn]] inline void compete(const std::function<Locks()>& open_client, int worker, Evidence& evidence) {
  using namespace std::chrono_literals;
  // The worker must not outlive the test, even if the test crashes.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    auto locks = open_client();
    for (;;) {
      // A short ttl, so that many locks expire and other workers take them over.
      const auto lease = locks.acquire(
          "storm", {.ttl = 300ms, .wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries}});
      take_turn(lease, worker, evidence);
    }
  } catch (const std::exception& error) {
    ++evidence.failures;
    std::fprintf(stderr, "worker %d: %s\n", worker, error.what());
    _exit(1);
  }
}

// Kills processes at random moments while they compete for a lock, and replaces them. Critical sections never overlap,
// fences never repeat, and the lock can be acquired afterwards. Forks: call it before any threads are started.
inline void survive_kills(const std::function<Locks()>& open_client, Evidence& evidence) {
  using namespace std::chrono_literals;
  using std::chrono::steady_clock;
  constexpr int workers = 20;
  std::vector<pid_t> children(workers);
  const auto start_worker = [&](std::size_t worker) {
    evidence.killed[worker] = false;
    children[worker] = fork_when_idle();
    if (children[worker] == 0) compete(open_client, static_cast<int>(worker), evidence);
  };
  for (std::size_t worker = 0; worker < workers; ++worker) start_worker(worker);

  std::mt19937 random(std::random_device{}());
  const auto end = steady_clock::now() + storm_length(4s);
  // A busy machine needs longer for enough turns and kills.
  const auto latest_end = end + 60s;
  int kills = 0;
  while (steady_clock::now() < end || ((evidence.turns <= 10 || kills <= 20) && steady_clock::now() < latest_end)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
    const auto worker = static_cast<std::size_t>(random() % workers);
    // Stopped first, so that it cannot enter or leave a critical section between the entry in `killed` and the kill.
    kill(children[worker], SIGSTOP);
    waitpid(children[worker], nullptr, WUNTRACED);
    evidence.killed[worker] = true;
    kill(children[worker], SIGKILL);
    waitpid(children[worker], nullptr, 0);
    ++kills;
    // The killed worker may still be recorded as inside. Its replacement must not be mistaken for it.
    int inside = static_cast<int>(worker);
    evidence.inside.compare_exchange_strong(inside, -1);
    start_worker(worker);
  }
  for (const pid_t child : children) kill(child, SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);

  EXPECT_EQ(evidence.overlaps, 0);
  EXPECT_EQ(evidence.fences_out_of_order, 0);
  EXPECT_EQ(evidence.failures, 0);
  EXPECT_GT(evidence.turns, 10);
  EXPECT_GT(kills, 20);
  EXPECT_TRUE(open_client().acquire("storm", {.wait = {.timeout = 60s, .max_retries = 1000}}));
  std::printf("%d turns, %d kills, newest fence %llu\n", evidence.turns.load(), kills,
              static_cast<unsigned long long>(evidence.newest_fence.load()));
}

// The main loop of a worker process whose server restarts. It expects retryable errors, counts all others and
// continues.
[[noreturn]] inline void keep_working(const std::string& url, int worker, Evidence& evidence) {
  using namespace std::chrono_literals;
  using std::chrono::steady_clock;
  // The worker must not outlive the test, even if the test crashes.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto locks = open(url, {.operation_timeout = 2s});
  const auto timed = [&](auto operation) {
    const auto start = steady_clock::now();
    const auto error = error_of(operation);
    const auto took = std::chrono::floor<std::chrono::milliseconds>(steady_clock::now() - start);
    if (took > evidence.slowest_operation.load()) evidence.slowest_operation = took;
    if (error) throw LockError(*error);
  };
  for (;;) {
    try {
      auto lease = locks.acquire(
          "storm",
          {.ttl = 5s, .wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries, .max_delay = 500ms}});
      take_turn(lease, worker, evidence);
      timed([&] { (void)lease.release(); });
      timed([&] { (void)locks.is_locked("other"); });
    } catch (const LockError& error) {
      if (!error.retryable()) {
        ++evidence.failures;
        std::fprintf(stderr, "worker %d: %s\n", worker, error.what());
      }
    }
  }
}

// Restarts a server repeatedly while processes compete for a lock on it. Critical sections never overlap, fences never
// repeat, and every process gets a turn after the last restart. Forks: call it before any threads are started.
inline void survive_restarts(const std::string& url, Evidence& evidence, const std::function<void()>& stop_server,
                             const std::function<void()>& start_server) {
  using namespace std::chrono_literals;
  using std::chrono::steady_clock;
  const auto duration = storm_length(8s);
  constexpr int workers = 8;
  std::vector<pid_t> children;
  for (int worker = 0; worker < workers; ++worker) {
    children.push_back(fork_when_idle());
    if (children.back() == 0) keep_working(url, worker, evidence);
  }
  const auto end = steady_clock::now() + duration;
  int stops = 0;
  while (steady_clock::now() < end) {
    std::this_thread::sleep_for(1500ms);
    stop_server();
    ++stops;
    std::this_thread::sleep_for(200ms);
    start_server();
  }
  std::vector<int> before;
  for (std::size_t worker = 0; worker < workers; ++worker) before.push_back(evidence.turns_of[worker]);
  for (std::size_t worker = 0; worker < workers; ++worker) {
    EXPECT_TRUE(eventually([&] { return evidence.turns_of[worker] > before[worker]; })) << "worker " << worker;
  }
  for (const pid_t child : children) kill(child, SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  EXPECT_EQ(evidence.overlaps, 0);
  EXPECT_EQ(evidence.fences_out_of_order, 0);
  EXPECT_EQ(evidence.failures, 0);
  EXPECT_LT(evidence.slowest_operation.load(), 12s)
      << "an operation times out after two seconds; the rest is allowance for a busy machine";
  std::printf("%d turns, %d stops, slowest operation %lld ms\n", evidence.turns.load(), stops,
              static_cast<long long>(evidence.slowest_operation.load().count()));
}

}  // namespace syncguard::testing
