// For what takes its time, and for what needs a machine that has a moment for it: tests run beside each other, with
// sanitizers, on machines with few cores.
#pragma once

#include <chrono>
#include <thread>

namespace syncguard::testing {

// Waits until condition() holds; false if it does not within a minute.
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

// For what has to happen within a moment, such as the 50 ms of a turn, and is missed by a process that does not run
// meanwhile. True if one of ten attempts succeeds: what is broken fails all ten.
template <typename Attempt>
bool succeeds_once(Attempt attempt) {
  for (int i = 0; i < 10; ++i) {
    if (attempt()) return true;
  }
  return false;
}

}  // namespace syncguard::testing
