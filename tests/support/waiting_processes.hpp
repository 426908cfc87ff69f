// Processes that wait for a lock and can be stopped or killed while they wait.
#pragma once

#include "support/eventually.hpp"
#include "support/fork_when_idle.hpp"
#include "support/long_timeouts.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {

// The maximum delay of live waiters by all dead and frozen waiters together: half a second, plus an allowance for
// scheduling the processes.
inline constexpr std::chrono::milliseconds max_delay_by_dead_waiters{600};

class WaitingProcesses {
 public:
  // Each process waits until "key" is locked, then waits for the lock. Forks: no SQLite database may be open.
  WaitingProcesses(int count, const std::string& url) {
    for (int i = 0; i < count; ++i) {
      const pid_t child = fork_when_idle();
      if (child == 0) wait_for_lock(url);
      children_.push_back(child);
    }
  }
  WaitingProcesses(const WaitingProcesses&) = delete;
  WaitingProcesses& operator=(const WaitingProcesses&) = delete;
  ~WaitingProcesses() { kill(); }

  // Returns once all processes have stopped, so that none takes a turn afterwards.
  void freeze() const {
    for (const pid_t child : children_) {
      ::kill(child, SIGSTOP);
      int status = 0;
      EXPECT_EQ(waitpid(child, &status, WUNTRACED), child);
      EXPECT_TRUE(WIFSTOPPED(status));
    }
  }
  void kill() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    children_.clear();
  }

 private:
  [[noreturn]] static void wait_for_lock(const std::string& url) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      auto locks = open_with_long_timeout(url);
      while (!locks.is_locked("key")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const auto lease = locks.acquire("key", patient);
      for (;;) pause();
    } catch (const std::exception&) {
      _exit(1);
    }
  }

  std::vector<pid_t> children_;
};

// The queue of "key" in a store.
struct QueueOfKey {
  std::string url;
  std::function<void()> clear;
  // Waits until the queue has this many waiters.
  std::function<void(int)> expect_waiters;
};

// Two live waiters queue behind processes that `disable` has killed or frozen. After the release, both get the lock
// within the limit.
inline void expect_dead_waiters_cost_half_a_second(const QueueOfKey& queue,
                                                   const std::function<void(WaitingProcesses&)>& disable) {
  using std::chrono::steady_clock;
  steady_clock::duration took{};
  EXPECT_TRUE(succeeds_once([&] {
    queue.clear();
    WaitingProcesses dead(3, queue.url);
    auto holder = open_with_long_timeout(queue.url);
    std::array<Locks, 2> live = {open_with_long_timeout(queue.url), open_with_long_timeout(queue.url)};
    for (auto& locks : live) (void)locks.is_locked("key");
    auto lease = holder.acquire("key", {.ttl = std::chrono::minutes(10)});
    queue.expect_waiters(3);
    disable(dead);
    std::vector<std::thread> threads;
    for (auto& locks : live) {
      threads.emplace_back([&] { EXPECT_TRUE(locks.acquire("key", patient).release()); });
      queue.expect_waiters(3 + static_cast<int>(threads.size()));
    }
    const auto start = steady_clock::now();
    EXPECT_TRUE(lease.release());
    for (auto& thread : threads) thread.join();
    took = steady_clock::now() - start;
    EXPECT_LT(took, soon);
    return took < max_delay_by_dead_waiters;
  })) << "both live waiters together took "
      << std::chrono::duration<double>(took).count() << " s";
}

}  // namespace syncguard::testing
