#include "command/access_rules.hpp"

#include <syncguard/error.hpp>

#include <gtest/gtest.h>

namespace syncguard::command {
namespace {

using namespace std::chrono_literals;

TEST(ListenAddress, ReadsAddressAndPort) {
  const auto address = ListenAddress::parse("127.0.0.1:9465");
  EXPECT_EQ(address.host, "127.0.0.1");
  EXPECT_EQ(address.port, 9465);
  EXPECT_EQ(ListenAddress::parse("localhost:0").host, "127.0.0.1");
  EXPECT_EQ(ListenAddress::parse("[::1]:80").str(), "[::1]:80");
}

TEST(ListenAddress, RejectsNamesAndMissingPorts) {
  for (const auto* text :
       {"", ":", "9465", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:1x", "::1:80",
        "[::1]", "[::1:80", "[127.0.0.1]:80", "example.com:80", "127.1:80"}) {
    EXPECT_THROW((void)ListenAddress::parse(text), LockError) << text;
  }
}

TEST(ListenAddress, KnowsLoopback) {
  EXPECT_TRUE(ListenAddress::parse("127.8.9.10:1").is_loopback());
  EXPECT_TRUE(ListenAddress::parse("[::1]:1").is_loopback());
  EXPECT_FALSE(ListenAddress::parse("0.0.0.0:1").is_loopback());
  EXPECT_FALSE(ListenAddress::parse("[::]:1").is_loopback());
  EXPECT_FALSE(ListenAddress::parse("[::ffff:127.0.0.1]:1").is_loopback());
  EXPECT_FALSE(ListenAddress::parse("10.0.0.1:1").is_loopback());
}

TEST(AllowedHost, AcceptsAddressesLocalhostAndListedNames) {
  for (const auto* host :
       {"127.0.0.1", "10.1.2.3:80", "[::1]", "[2001:db8::1]:443", "localhost", "LocalHost:1", "locks.example:9465"}) {
    EXPECT_TRUE(is_allowed_host(host, {"locks.example"})) << host;
  }
  for (const auto* host :
       {"", "evil.example", "locks.example", "localhost.evil.example", "127.0.0.1.evil.example",
        "127.0.0.1:", "127.0.0.1:x", "[::1", "[localhost]", "[::1]x", "127.0.0.1 evil", "evil.example#127.0.0.1"}) {
    EXPECT_FALSE(is_allowed_host(host, {})) << host;
  }
}

TEST(SameOrigin, ComparesWithTheHost) {
  EXPECT_TRUE(is_same_origin("http://127.0.0.1:9465", "127.0.0.1:9465"));
  EXPECT_TRUE(is_same_origin("https://Locks.example", "locks.example"));
  for (const auto* origin : {"", "null", "http://127.0.0.1:9466", "http://127.0.0.1", "ftp://127.0.0.1:9465",
                             "127.0.0.1:9465", "http://evil.example", "http://127.0.0.1:9465.evil.example"}) {
    EXPECT_FALSE(is_same_origin(origin, "127.0.0.1:9465")) << origin;
  }
  EXPECT_FALSE(is_same_origin("http://", ""));
}

TEST(BearerToken, MatchesOnlyItself) {
  const BearerToken token("0123456789abcdef\n");
  EXPECT_TRUE(token.matches("Bearer 0123456789abcdef"));
  EXPECT_TRUE(token.matches("bearer 0123456789abcdef"));
  for (const auto* header : {"", "Bearer", "Bearer ", "0123456789abcdef", "Bearer 0123456789abcde",
                             "Bearer 0123456789abcdef0", "Basic 0123456789abcdef", "Bearer  0123456789abcdef"}) {
    EXPECT_FALSE(token.matches(header)) << header;
  }
}

TEST(BearerToken, RejectsWeakTokens) {
  for (const auto* text :
       {"", "\n", "0123456789abcde", "0123456789 abcdef0", "0123456789abcdef\x01", "0123456789abcdef\xc3\xa4"}) {
    EXPECT_THROW((void)BearerToken(text), LockError) << text;
  }
}

TEST(RateLimit, AllowsABurstThenTheRate) {
  RateLimit limit(2, 3);
  const RateLimit::Time now(1h);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limit.allows(now));
  EXPECT_FALSE(limit.allows(now));
  EXPECT_FALSE(limit.allows(now + 400ms));
  EXPECT_TRUE(limit.allows(now + 600ms));
  EXPECT_FALSE(limit.allows(now + 700ms));
  // Unused requests are kept only up to the burst.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limit.allows(now + 1h));
  EXPECT_FALSE(limit.allows(now + 1h));
}

}  // namespace
}  // namespace syncguard::command
