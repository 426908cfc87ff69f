// Processes that fight over one lock while somebody kills what they need.
#pragma once

#include "eventually.hpp"
#include "expect_error.hpp"

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

// What the processes share: evidence that survives their death.
struct Evidence {
  static constexpr int most_workers = 64;
  std::atomic<std::uint64_t> newest_fence{0};
  std::atomic<int> inside{-1};
  std::array<std::atomic<bool>, most_workers> killed{};
  std::array<std::atomic<std::int64_t>, most_workers> holds_until{};  // see ticks()
  std::array<std::atomic<int>, most_workers> turns_of{};
  std::atomic<int> overlaps{0};
  std::atomic<int> fences_out_of_order{0};
  std::atomic<int> turns{0};
  std::atomic<int> failures{0};
  std::atomic<std::int64_t> slowest_operation_ms{0};
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

// How long a storm lasts; SYNCGUARD_STORM_SECONDS makes it longer.
inline std::chrono::seconds storm_length(std::chrono::seconds usual) {
  const char* chosen = std::getenv("SYNCGUARD_STORM_SECONDS");
  return chosen != nullptr ? std::chrono::seconds(std::atoi(chosen)) : usual;
}

inline std::int64_t ticks() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// One turn inside, as evidence.
inline void take_turn(const Lease& lease, int worker, Evidence& evidence) {
  const auto fence = lease.fence().value();
  evidence.holds_until[static_cast<std::size_t>(worker)] =
      ticks() + std::chrono::steady_clock::duration(lease.remaining()).count();
  const int before = evidence.inside.exchange(worker);
  const auto newest = evidence.newest_fence.exchange(fence);
  // A worker that did not run until its lock was over is no evidence of anything, as newcomer or as the one before.
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

// What a worker process does until it is killed.
[[noreturn]] inline void fight(const std::function<Locks()>& open_client, int worker, Evidence& evidence) {
  using namespace std::chrono_literals;
  // Not to survive the test, however that ends.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    auto locks = open_client();
    for (;;) {
      // Short, so that many are taken over.
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

// Kills processes at any instant while they fight over a lock, and starts others in their place. Nobody is let in
// twice, no fence comes twice, and the lock is to be had afterwards. Forks, so that it has to come before any threads.
inline void survive_kills(const std::function<Locks()>& open_client, Evidence& evidence) {
  using namespace std::chrono_literals;
  using std::chrono::steady_clock;
  constexpr int workers = 20;
  std::vector<pid_t> children(workers);
  const auto start_worker = [&](std::size_t worker) {
    evidence.killed[worker] = false;
    children[worker] = fork();
    if (children[worker] == 0) fight(open_client, static_cast<int>(worker), evidence);
  };
  for (std::size_t worker = 0; worker < workers; ++worker) start_worker(worker);

  std::mt19937 random(std::random_device{}());
  const auto end = steady_clock::now() + storm_length(4s);
  // On a machine that is busy with other tests it takes longer until enough has happened.
  const auto latest_end = end + 60s;
  int kills = 0;
  while (steady_clock::now() < end || ((evidence.turns <= 10 || kills <= 20) && steady_clock::now() < latest_end)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
    const auto worker = static_cast<std::size_t>(random() % workers);
    // So that it does not move between the note and the kill.
    kill(children[worker], SIGSTOP);
    waitpid(children[worker], nullptr, WUNTRACED);
    evidence.killed[worker] = true;
    kill(children[worker], SIGKILL);
    waitpid(children[worker], nullptr, 0);
    ++kills;
    // It must not be taken for the killed one, should that still count as inside.
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

// What a worker process does until it is killed, where the server is what fails: it counts what must not happen and
// goes on.
[[noreturn]] inline void keep_working(const std::string& url, int worker, Evidence& evidence) {
  using namespace std::chrono_literals;
  using std::chrono::steady_clock;
  // Not to survive the test, however that ends.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto locks = open(url, {.operation_timeout = 2s});
  const auto timed = [&](auto operation) {
    const auto start = steady_clock::now();
    const auto error = error_of(operation);
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - start).count();
    if (took > evidence.slowest_operation_ms) evidence.slowest_operation_ms = took;
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

// Stops and starts a server over and over while processes fight over a lock on it. Nobody is let in twice, no fence
// comes twice, and everybody has a turn after the last start. Forks, so that it has to come before any threads.
inline void survive_restarts(const std::string& url, Evidence& evidence, const std::function<void()>& stop_server,
                             const std::function<void()>& start_server) {
  using namespace std::chrono_literals;
  using std::chrono::steady_clock;
  const auto duration = storm_length(8s);
  constexpr int workers = 8;
  std::vector<pid_t> children;
  for (int worker = 0; worker < workers; ++worker) {
    children.push_back(fork());
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
  EXPECT_LT(evidence.slowest_operation_ms, 12'000)
      << "one operation's time-out is two seconds; the rest is for a busy machine";
  std::printf("%d turns, %d stops, slowest operation %lld ms\n", evidence.turns.load(), stops,
              static_cast<long long>(evidence.slowest_operation_ms.load()));
}

}  // namespace syncguard::testing
