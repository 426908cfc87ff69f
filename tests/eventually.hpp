// For what happens in the background.
#pragma once

#include <chrono>
#include <thread>

namespace syncguard::testing {

// Waits until condition() holds; false if it does not within ten seconds.
template <typename Condition>
bool eventually(Condition condition) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

}  // namespace syncguard::testing
