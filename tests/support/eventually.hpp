// Waits and retries. Tests run in parallel, with sanitizers, on machines with few cores, so any of them may be delayed.
#pragma once

#include <chrono>
#include <thread>

namespace syncguard::testing {

// Waits until condition() is true. Returns false if it is not true within a minute.
template <typename Condition>
bool eventually(Condition condition) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// For behavior with a short deadline, such as the 50 ms of a reserved turn, which a delayed process misses. Returns
// true if one of ten attempts succeeds. A defect makes all ten fail.
template <typename Attempt>
bool succeeds_once(Attempt attempt) {
  for (int i = 0; i < 10; ++i) {
    if (attempt()) return true;
  }
  return false;
}

}  // namespace syncguard::testing
