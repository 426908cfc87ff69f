// What a waiter costs the others if it is dead or frozen, and what one gets that is far away.

#include "bench.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::bench {
namespace {

const AcquireOptions patient{.wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries}};

// A process that runs a function, and is killed by the destructor. Start it before this process uses gRPC, which does
// not support a fork afterwards.
class Child {
 public:
  template <typename Function>
  explicit Child(Function function) : process_(fork()) {
    if (process_ == -1) throw std::runtime_error("no process");
    if (process_ != 0) return;
    try {
      function();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  void send(int signal) const { kill(process_, signal); }

 private:
  const pid_t process_;
};

// Carries times between processes.
class Pipe {
 public:
  Pipe() {
    if (pipe(ends_.data()) != 0) throw std::runtime_error("no pipe");
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void put(Clock::time_point time) const {
    if (write(ends_[1], &time, sizeof time) != sizeof time) throw std::runtime_error("cannot write to a pipe");
  }
  // Throws if nothing arrives: the other process has failed.
  [[nodiscard]] Clock::time_point take() const {
    constexpr int timeout_ms = 60'000;
    pollfd readable{ends_[0], POLLIN, 0};
    Clock::time_point time;
    if (poll(&readable, 1, timeout_ms) != 1 || read(ends_[0], &time, sizeof time) != sizeof time)
      throw std::runtime_error("cannot read from a pipe");
    return time;
  }

 private:
  std::array<int, 2> ends_{};
};

// Returns when so many clients wait for the key. A store without a queue cannot tell, so it gets some time instead.
void wait_for_waiters(Locks& locks, const Key& key, std::size_t count) {
  for (;;) {
    const auto state = locks.admin().inspect(key);
    if (state.holders.empty()) throw std::runtime_error("the key is not held");
    if (!state.waiters) return std::this_thread::sleep_for(1s);
    if (*state.waiters >= count) return;
    std::this_thread::sleep_for(5ms);
  }
}

// The time from the release until the last waiter has the lock, while all others, ahead of it, get a signal and do not
// take it.
Seconds delay_by_first_waiters(const std::string& url, const Key& key, int signal, std::size_t count) {
  const Pipe held;
  const Pipe first_wait;
  const Pipe all_wait;
  const Pipe disabled;
  const Pipe released;
  const Pipe acquired;
  const Child holder([&] {
    auto locks = open(url);
    auto lease = locks.acquire(key);
    held.put(Clock::now());
    wait_for_waiters(locks, key, count);
    first_wait.put(Clock::now());
    wait_for_waiters(locks, key, count + 1);
    all_wait.put(Clock::now());
    (void)disabled.take();
    released.put(Clock::now());
    lease.release();
  });
  (void)held.take();
  const Child first([&] {
    std::vector<std::thread> clients;
    for (std::size_t i = 0; i < count; ++i) {
      clients.emplace_back([&] {
        auto locks = open(url);
        const auto lease = locks.acquire(key, patient);
        std::this_thread::sleep_for(60s);
      });
    }
    for (auto& client : clients) client.join();
  });
  (void)first_wait.take();
  const Child last([&] {
    auto locks = open(url);
    const auto lease = locks.acquire(key, patient);
    acquired.put(Clock::now());
  });
  (void)all_wait.take();
  first.send(signal);
  disabled.put(Clock::now());
  return acquired.take() - released.take();
}

// The turns of a client that is far away, while two near ones compete for the same key.
double share_of_far_client(const std::string& near, const std::string& far, Seconds duration) {
  const std::array<std::string, 3> urls{near, near, far};
  std::array<std::atomic<int>, 3> turns{};
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(duration);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < urls.size(); ++i) {
    threads.emplace_back([&, i] {
      auto locks = open(urls.at(i));
      while (Clock::now() < end) {
        const auto lease = locks.acquire("distant", patient);
        ++turns.at(i);
        std::this_thread::sleep_for(300ms);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return 3.0 * turns[2] / (turns[0] + turns[1] + turns[2]);
}

}  // namespace

void measure_disabled_waiters(const Settings& settings, Report& report) {
  // Processes cannot share a memory store.
  if (settings.url.starts_with("memory:")) return;
  constexpr int rounds = 5;
  for (const auto& [name, signal] : {std::pair{"dead", SIGKILL}, std::pair{"frozen", SIGSTOP}}) {
    for (const std::size_t count : {1U, 10U, 100U}) {
      // Firestore has no queue, so no crowd can be ahead.
      if (count > 1 && settings.url.starts_with("firestore:")) continue;
      const auto behind = "behind " + std::to_string(count) + " " + name + (count == 1 ? " waiter" : " waiters");
      Seconds longest{};
      for (int round = 0; round < rounds; ++round) {
        const Key key = behind + " " + std::to_string(round);
        longest = std::max(longest, delay_by_first_waiters(settings.url, key, signal, count));
      }
      report.add({.group = "troubled waiters",
                  .name = behind + ", longest of 5",
                  .value = longest.count() * 1e3,
                  .unit = "ms"});
    }
  }
}

void measure_far_waiter(const Settings& settings, Report& report) {
  if (settings.far_url.empty()) return;
  report.add({.group = "troubled waiters",
              .name = "80 ms away, turns relative to a fair share",
              .value = share_of_far_client(settings.url, settings.far_url, Seconds(4 * settings.seconds)),
              .unit = ""});
}

}  // namespace syncguard::bench
