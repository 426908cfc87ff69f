// Fairness between clients with different round-trip times.
#pragma once

#include "support/long_timeouts.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {

// Two clients near the store and one far away compete for a lock. The far client needs several round trips to rejoin
// the queue, during which the others take turns. The critical sections are so long that its fair share is still a
// third; the test expects half of that.
inline void expect_half_of_fair_share(const std::string& near_url, const std::string& far_url) {
  const std::array<std::string, 3> urls{near_url, near_url, far_url};
  std::array<std::atomic<int>, 3> grants{};
  std::atomic<bool> ending{false};
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < urls.size(); ++i) {
    clients.emplace_back([&, i] {
      auto locks = open_with_long_timeout(urls[i]);
      while (!ending) {
        const auto lease = locks.acquire("key", patient);
        ++grants[i];
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::seconds(12));
  const int total = grants[0] + grants[1] + grants[2];
  EXPECT_GE(grants[2] * 6, total) << grants[0] << ", " << grants[1] << " and, far away, " << grants[2];
  ending = true;
  for (auto& client : clients) client.join();
}

}  // namespace syncguard::testing
