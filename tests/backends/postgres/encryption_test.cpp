#include "backends/postgres/diagnosis.hpp"

#include <gmock/gmock.h>

namespace syncguard::postgres {
namespace {

using ::testing::HasSubstr;

Finding judged(const Security& security) { return encryption("TLS", security); }

TEST(PostgresEncryption, RemoteConnectionsMustBeEncryptedAndVerified) {
  const auto plain = judged({.local = false, .encrypted = false, .sslmode = "verify-full"});
  EXPECT_EQ(plain.verdict, Finding::Verdict::warning);
  EXPECT_THAT(plain.found, HasSubstr("not encrypted"));
  const auto unverified = judged({.local = false, .encrypted = true, .sslmode = "require"});
  EXPECT_EQ(unverified.verdict, Finding::Verdict::warning);
  EXPECT_THAT(unverified.found, HasSubstr("sslmode require"));
  EXPECT_EQ(judged({.local = false, .encrypted = true, .sslmode = "verify-full"}).verdict, Finding::Verdict::fine);
  EXPECT_EQ(judged({.local = true, .encrypted = false, .sslmode = "prefer"}).verdict, Finding::Verdict::fine);
}

}  // namespace
}  // namespace syncguard::postgres
