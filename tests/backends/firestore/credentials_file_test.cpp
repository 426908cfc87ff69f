// Which credentials files are accepted. Requests with them are in credentials_test.cpp.

#include "backends/firestore/credentials.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <string>

namespace syncguard::testing {
namespace {

TEST(FirestoreCredentialsFile, TypesThatGrpcCanUseAreAccepted) {
  for (const std::string type : {"service_account", "authorized_user", "external_account"}) {
    const auto start = R"({"type":")" + type + "\"";
    EXPECT_EQ(firestore::check_credentials_file(start + "}", "the file"), "") << type;
    EXPECT_EQ(firestore::check_credentials_file(start + R"(,"quota_project_id":"payer"})", "the file"), "payer")
        << type;
  }
}

TEST(FirestoreCredentialsFile, OtherFilesAreRefused) {
  for (const std::string contents : {"", "[]", "{}", R"({"type":1})", R"({"type":"impersonated_service_account"})",
                                     R"({"type":"authorized_user","quota_project_id":"two words"})"}) {
    expect_error(ErrorCode::auth_failed, [&] { (void)firestore::check_credentials_file(contents, "the file"); });
  }
}

}  // namespace
}  // namespace syncguard::testing
