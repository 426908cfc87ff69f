// Processes that fight over one lock while somebody kills what they need.
#pragma once

#include <syncguard/syncguard.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <thread>

namespace syncguard::testing {

// What the processes share: evidence that survives their death.
struct Evidence {
  static constexpr int most_workers = 64;
  std::atomic<std::uint64_t> newest_fence{0};
  std::atomic<int> inside{-1};
  std::array<std::atomic<bool>, most_workers> killed{};
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

// One turn inside, as evidence.
inline void take_turn(const Lease& lease, int worker, Evidence& evidence) {
  const int before = evidence.inside.exchange(worker);
  if (before >= 0 && !evidence.killed[static_cast<std::size_t>(before)]) ++evidence.overlaps;
  const auto fence = lease.fence().value();
  if (evidence.newest_fence.exchange(fence) >= fence) ++evidence.fences_out_of_order;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ++evidence.turns;
  ++evidence.turns_of[static_cast<std::size_t>(worker)];
  evidence.inside = -1;
}

// What a worker process does until it is killed.
[[noreturn]] inline void fight(const std::function<Locks()>& open_client, int worker, Evidence& evidence,
                               std::chrono::milliseconds ttl) {
  using namespace std::chrono_literals;
  try {
    auto locks = open_client();
    for (;;) {
      const auto lease =
          locks.acquire("storm", {.ttl = ttl, .wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries}});
      take_turn(lease, worker, evidence);
    }
  } catch (const std::exception& error) {
    ++evidence.failures;
    std::fprintf(stderr, "worker %d: %s\n", worker, error.what());
    _exit(1);
  }
}

}  // namespace syncguard::testing
