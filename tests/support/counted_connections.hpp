// A check of Metrics that several backends share.
#pragma once

#include "support/eventually.hpp"
#include "support/long_timeouts.hpp"

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

namespace syncguard::testing {

// Checks that Metrics count the connections of a backend whose waiters have one of their own. wait_for_waiter returns
// when one is in the queue.
inline void expect_connections_are_counted(const std::string& url, const std::function<void()>& wait_for_waiter) {
  const Metrics metrics;
  const auto connections = [&] { return metrics.snapshot().at(0).connections_open; };
  const auto locks = open_with_long_timeout(url, {.metrics = metrics});
  EXPECT_EQ(connections(), 0U) << "the first operation connects";
  auto lease = locks.acquire("key");
  EXPECT_EQ(connections(), 1U);
  std::thread waiting([&] { EXPECT_TRUE(locks.acquire("key", patient)); });
  wait_for_waiter();
  EXPECT_EQ(connections(), 2U) << "waiters have a connection of their own";
  EXPECT_TRUE(lease.release());
  waiting.join();
  locks.close();
  EXPECT_TRUE(eventually([&] { return connections() == 0; }));
}

}  // namespace syncguard::testing
