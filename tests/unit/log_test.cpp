#include <syncguard/log.hpp>
#include <syncguard/syncguard.hpp>

#include "support/fork_when_idle.hpp"
#include "support/is_granted.hpp"
#include "support/signal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncguard {
namespace {

using namespace std::chrono_literals;
using syncguard::testing::Signal;

TEST(Log, RateLimitsWarningsOfTheSameKind) {
  std::vector<std::string> messages;
  const Log log([&](LogLevel, std::string_view message) { messages.emplace_back(message); });
  const Log copy = log;  // NOLINT(performance-unnecessary-copy-initialization): what is tested
  log.warn("a", "first");
  copy.warn("a", "again");
  log.warn("b", "of another kind");
  ASSERT_TRUE(log.flush(60s));
  EXPECT_EQ(messages, (std::vector<std::string>{"first", "of another kind"}));
}

TEST(Log, SurvivesThrowingSink) {
  const Log log([](LogLevel, std::string_view) { throw std::runtime_error("full disk"); });
  log.warn("a", "message");
  EXPECT_TRUE(log.flush(60s));
}

TEST(Log, NeverWaitsForBlockedSinkAndReportsDroppedMessages) {
  std::mutex mutex;
  std::vector<std::string> messages;
  Signal blocked;
  Signal unblock;
  const Log log([&](LogLevel, std::string_view message) {
    blocked.set();
    unblock.wait_for(100s);
    const std::lock_guard lock(mutex);
    messages.emplace_back(message);
  });
  log.warn("first", "first");
  ASSERT_TRUE(blocked.wait_for(60s));
  for (int i = 0; i < 1034; ++i) log.warn("kind " + std::to_string(i), "message " + std::to_string(i));
  EXPECT_FALSE(log.flush(1ms));
  unblock.set();
  ASSERT_TRUE(log.flush(60s));
  const std::lock_guard lock(mutex);
  ASSERT_EQ(messages.size(), 1026U);
  EXPECT_EQ(messages[0], "first");
  EXPECT_NE(messages[1].find("10 log messages were dropped"), std::string::npos) << messages[1];
  EXPECT_EQ(messages[2], "message 0");
  EXPECT_EQ(messages.back(), "message 1023");
}

TEST(Log, WorksInForkedChild) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const Log log([&](LogLevel, std::string_view message) {
    EXPECT_EQ(write(pipe_ends[1], message.data(), message.size()), static_cast<ssize_t>(message.size()));
  });
  log.warn("parent", "parent;");
  ASSERT_TRUE(log.flush(60s));
  const pid_t child = testing::fork_when_idle();
  if (child == 0) {
    log.warn("child", "child;");
    _exit(log.flush(60s) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::array<char, 64> text{};
  const auto size = read(pipe_ends[0], text.data(), text.size());
  EXPECT_EQ(std::string(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))), "parent;child;");
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(Log, ConstructorArgumentEnablesDebugging) {
  const auto printed = [](const Log& log) {
    ::testing::internal::CaptureStderr();
    log.debug("message");
    EXPECT_TRUE(log.flush(60s));
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(printed(Log(LogLevel::debug)), "syncguard: message\n");
  EXPECT_EQ(printed(Log(LogLevel::warning)), "");
}

// SYNCGUARD_DEBUG=1 prints these messages.
TEST(Log, ShowsEachOperationWhenDebugging) {
  std::vector<std::string> messages;
  ClientOptions options;
  options.log = Log([&](LogLevel, std::string_view message) { messages.emplace_back(message); }, LogLevel::debug);
  {
    auto locks = open("memory:", options);
    auto lease = locks.try_acquire("my-key");
    ASSERT_TRUE(lease);
    EXPECT_FALSE(testing::is_granted(locks.try_acquire("my-key")));
    EXPECT_TRUE(lease->release());
  }
  ASSERT_TRUE(options.log.flush(60s));
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_THAT(messages[0], ::testing::MatchesRegex("acquire: ok in .* ms, key .*, lock id .*"));
  EXPECT_THAT(messages[1], ::testing::HasSubstr("acquire: fail (locked) in "));
  EXPECT_THAT(messages[2], ::testing::HasSubstr("release: ok in "));
  EXPECT_THAT(messages[0], ::testing::HasSubstr(hash_key("my-key")));
  for (const auto& message : messages) EXPECT_THAT(message, ::testing::Not(::testing::HasSubstr("my-key")));
}

}  // namespace
}  // namespace syncguard
