#include "os/threads.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

namespace syncguard::os {
namespace {

using namespace std::chrono_literals;

// Exits at once, with a thread that ends its work when it learns of that.
[[noreturn]] void exit_beside_thread() {
  auto delays_exit = std::make_shared<DelaysExit>();
  start_thread("test", [delays_exit = std::move(delays_exit)]() mutable {
    while (!is_exiting()) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(100ms);
    std::fputs("the thread has ended", stderr);
    delays_exit.reset();
  }).detach();
  std::exit(EXIT_SUCCESS);
}

TEST(DelaysExitTest, ExitWaitsForThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_beside_thread(), ::testing::ExitedWithCode(EXIT_SUCCESS), "the thread has ended");
}

[[noreturn]] void exit_beside_endless_thread() {
  auto delays_exit = std::make_shared<DelaysExit>();
  start_thread("test", [delays_exit = std::move(delays_exit)] {
    for (;;) pause();
  }).detach();
  std::exit(EXIT_SUCCESS);
}

TEST(DelaysExitTest, ExitDoesNotWaitForever) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_beside_endless_thread(), ::testing::ExitedWithCode(EXIT_SUCCESS), "");
}

}  // namespace
}  // namespace syncguard::os
