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

std::string impersonated(const std::string& url, const std::string& source, const std::string& more = "") {
  return R"({"type":"impersonated_service_account","service_account_impersonation_url":")" + url +
         R"(","source_credentials":)" + source + more + "}";
}

constexpr const char* url =
    "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@b.c:generateAccessToken";
constexpr const char* source = R"({"type":"authorized_user"})";

TEST(FirestoreCredentialsFile, ImpersonatedAccountIsAccepted) {
  for (const std::string more : {"", R"(,"delegates":[])", R"(,"delegates":null)", R"(,"delegates":["d@b.c"])",
                                 R"(,"delegates":["projects/-/serviceAccounts/d@b.c"])"}) {
    EXPECT_EQ(
        firestore::check_credentials_file(impersonated(url, source, more + R"(,"quota_project_id":"payer")"), "x"),
        "payer")
        << more;
  }
}

TEST(FirestoreCredentialsFile, OtherFilesAreRefused) {
  for (const std::string& contents :
       {std::string(), std::string("[]"), std::string("{}"), std::string(R"({"type":1})"),
        std::string(R"({"type":"impersonated_service_account"})"),
        std::string(R"({"type":"authorized_user","quota_project_id":"two words"})"),
        impersonated(url, R"({"type":"impersonated_service_account"})"), impersonated(url, "null"),
        impersonated(url, R"({"type":"authorized_user","quota_project_id":"two words"})"),
        impersonated(url, source, R"(,"delegates":[1])"), impersonated(url, source, R"(,"delegates":["a b"])"),
        impersonated("", source), impersonated("https://", source),
        impersonated("https:///v1/:generateAccessToken", source),
        impersonated("http" + std::string(url).substr(5), source), impersonated(url + std::string("?x"), source),
        impersonated("https://evil.example/@iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"
                     "a@b.c:generateAccessToken",
                     source),
        impersonated("https://iamcredentials.googleapis.com/v1/projects/x/serviceAccounts/a@b.c:generateAccessToken",
                     source)}) {
    expect_error(ErrorCode::auth_failed, [&] { (void)firestore::check_credentials_file(contents, "the file"); });
  }
}

}  // namespace
}  // namespace syncguard::testing
