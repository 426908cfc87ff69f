#include "core/validation.hpp"
#include "support/expect_error.hpp"

#include <syncguard/client_options.hpp>

#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using namespace std::chrono_literals;
using syncguard::testing::expect_error;

TEST(Validation, AcceptsTtlFromMinimumToMaximum) {
  EXPECT_EQ(min_ttl, 1ms);
  EXPECT_EQ(max_ttl, std::chrono::milliseconds(1'000'000'000'000));
  validate_ttl(min_ttl);
  validate_ttl(max_ttl);
  for (const auto ttl : {min_ttl - 1ms, -1ms, max_ttl + 1ms, std::chrono::milliseconds::max()}) {
    expect_error(ErrorCode::invalid_argument, [&] { validate_ttl(ttl); });
  }
}

TEST(Validation, ErrorNamesInvalidWaitOption) {
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

TEST(Validation, LabelsOfHoldersAreShortTextWithoutControlCharacters) {
  for (const std::string& label :
       {std::string(), std::string("web-3/4711 ./deploy.sh"), std::string(ClientOptions::max_holder_bytes, 'x'),
        std::string("\xc3\xa9\xf0\x9f\x94\x92")}) {
    EXPECT_TRUE(is_holder(label)) << label;
    validate_holder(label);
    EXPECT_EQ(stored_holder(label), label);
  }
  for (const std::string& label : {std::string(ClientOptions::max_holder_bytes + 1, 'x'), std::string("\xff"),
                                   std::string("\xc3"), std::string("a\nb"), std::string("\x1b[2J"),
                                   std::string("\x7f"), std::string("\xc2\x9b"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(is_holder(label)) << label;
    expect_error(ErrorCode::invalid_argument, [&] { validate_holder(label); });
    EXPECT_EQ(stored_holder(label), "");
  }
}

}  // namespace
}  // namespace syncguard::core
