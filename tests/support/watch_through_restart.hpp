#pragma once

#include "support/eventually.hpp"
#include "support/expect_error.hpp"
#include "support/long_timeouts.hpp"

#include <syncguard/syncguard.hpp>

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <string>

namespace syncguard::testing {

// A watch does not end when its server stops, and reports the holder of a lock that was acquired after the restart.
template <typename Stop, typename Start>
void expect_watch_continues_after_restart(const std::string& url, Stop stop_server, Start start_server) {
  using namespace std::chrono_literals;
  std::mutex mutex;
  std::string last;
  const auto last_is = [&](const std::string& state) {
    return eventually([&] {
      const std::lock_guard lock(mutex);
      return last == state;
    });
  };
  std::stop_source stop;
  auto locks = open_with_long_timeout(url);
  auto watching = std::async(std::launch::async, [&] {
    locks.admin().watch(
        "key", {.interval = 20ms},
        [&](const KeyState& state) {
          const std::lock_guard lock(mutex);
          last = state.holders.empty() ? "free" : state.holders.at(0).label;
        },
        stop.get_token());
  });
  EXPECT_TRUE(last_is("free"));
  stop_server();
  auto other = open(url, {.holder = "after the restart"});
  EXPECT_TRUE(error_of([&] { (void)other.is_locked("key"); }));
  start_server();
  EXPECT_TRUE(eventually([&] { return !error_of([&] { (void)other.is_locked("key"); }); }));
  auto lease = other.acquire("key", {.ttl = 10min});
  EXPECT_TRUE(last_is("after the restart"));
  EXPECT_TRUE(lease.release());
  EXPECT_TRUE(last_is("free"));
  stop.request_stop();
  watching.get();
}

}  // namespace syncguard::testing
