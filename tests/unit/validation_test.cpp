#include "core/validation.hpp"
#include "expect_error.hpp"

#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using namespace std::chrono_literals;
using syncguard::testing::expect_error;

TEST(Validation, AcceptsATtlFromOneMillisecondToAQuarterOfACentury) {
  validate_ttl(1ms);
  validate_ttl(std::chrono::milliseconds(1'000'000'000'000));
  for (const auto ttl : {0ms, -1ms, std::chrono::milliseconds(1'000'000'000'001), std::chrono::milliseconds::max()}) {
    expect_error(ErrorCode::invalid_argument, [&] { validate_ttl(ttl); });
  }
}

TEST(Validation, NamesTheWaitOptionThatMakesNoSense) {
  validate(WaitOptions{});
  const auto message_of = [](const WaitOptions& options) {
    const auto error = syncguard::testing::error_of([&] { validate(options); });
    return error ? std::string(error->what()) : std::string();
  };
  EXPECT_NE(message_of({.timeout = -1ms}).find("wait.timeout"), std::string::npos);
  EXPECT_NE(message_of({.max_retries = -1}).find("wait.max_retries"), std::string::npos);
  EXPECT_NE(message_of({.retry_delay = -1ms}).find("wait.retry_delay"), std::string::npos);
  EXPECT_NE(message_of({.max_delay = -1ms}).find("wait.max_delay"), std::string::npos);
}

}  // namespace
}  // namespace syncguard::core
