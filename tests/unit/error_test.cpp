#include <syncguard/error.hpp>

#include <gtest/gtest.h>

namespace syncguard {
namespace {

TEST(LockError, ReportsWhetherRetryable) {
  for (const auto code : {ErrorCode::service_unavailable, ErrorCode::rate_limited, ErrorCode::network_timeout}) {
    EXPECT_TRUE(LockError(code, "").retryable()) << to_string(code);
  }
  for (const auto code : {ErrorCode::auth_failed, ErrorCode::invalid_argument, ErrorCode::acquisition_timeout,
                          ErrorCode::aborted, ErrorCode::lock_lost, ErrorCode::internal}) {
    EXPECT_FALSE(LockError(code, "").retryable()) << to_string(code);
  }
}

TEST(LockError, ReportsWhetherInDoubt) {
  EXPECT_FALSE(LockError(ErrorCode::network_timeout, "").in_doubt());
  EXPECT_TRUE(LockError(ErrorCode::network_timeout, "", Effect::in_doubt).in_doubt());
}

TEST(LockError, KeepsIdentifiersOutOfItsMessage) {
  const auto error = LockError(ErrorCode::internal, "it broke", Effect::in_doubt).about("the-key", "the-id");
  EXPECT_STREQ(error.what(), "Internal: it broke");
  EXPECT_EQ(error.context().key, "the-key");
  EXPECT_EQ(error.context().lock_id, "the-id");
  EXPECT_TRUE(error.in_doubt());
  EXPECT_EQ(error.about("other", "other").context().key, "the-key");
}

TEST(LockError, CodeNamesMatchTypeScript) {
  EXPECT_EQ(to_string(ErrorCode::service_unavailable), "ServiceUnavailable");
  EXPECT_EQ(to_string(ErrorCode::auth_failed), "AuthFailed");
  EXPECT_EQ(to_string(ErrorCode::invalid_argument), "InvalidArgument");
  EXPECT_EQ(to_string(ErrorCode::rate_limited), "RateLimited");
  EXPECT_EQ(to_string(ErrorCode::network_timeout), "NetworkTimeout");
  EXPECT_EQ(to_string(ErrorCode::acquisition_timeout), "AcquisitionTimeout");
  EXPECT_EQ(to_string(ErrorCode::aborted), "Aborted");
  EXPECT_EQ(to_string(ErrorCode::lock_lost), "LockLost");
  EXPECT_EQ(to_string(ErrorCode::internal), "Internal");
}

}  // namespace
}  // namespace syncguard
