#include <syncguard/log.hpp>

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace syncguard {
namespace {

TEST(Log, PassesOneWarningOfAKindOnAndHoldsTheNextBack) {
  std::vector<std::string> messages;
  const Log log([&](LogLevel, std::string_view message) { messages.emplace_back(message); });
  const Log copy = log;  // NOLINT(performance-unnecessary-copy-initialization): what is tested
  log.warn("a", "first");
  copy.warn("a", "again");
  log.warn("b", "of another kind");
  EXPECT_EQ(messages, (std::vector<std::string>{"first", "of another kind"}));
}

TEST(Log, SurvivesASinkThatThrows) {
  const Log log([](LogLevel, std::string_view) { throw std::runtime_error("full disk"); });
  log.warn("a", "message");
}

TEST(Log, DebugsAsItsConstructorWasTold) {
  const auto printed = [](const Log& log) {
    ::testing::internal::CaptureStderr();
    log.debug("message");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(printed(Log(LogLevel::debug)), "syncguard: message\n");
  EXPECT_EQ(printed(Log(LogLevel::warning)), "");
}

}  // namespace
}  // namespace syncguard
