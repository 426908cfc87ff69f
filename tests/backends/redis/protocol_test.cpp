// The parts of the Redis backend that do no I/O.

#include "backends/redis/protocol.hpp"
#include "backends/redis/errors.hpp"
#include "backends/url.hpp"
#include "support/expect_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace syncguard::testing {
namespace {

using redis::Reply;
using redis::ReplyReader;

RedisOptions parse(const std::string& text) {
  BackendUrl url(text);
  auto options = redis::options_of(url);
  url.expect_no_more_options();
  return options;
}

TEST(RedisUrl, HasDefaults) {
  const auto options = parse("redis://");
  EXPECT_EQ(options.host, "127.0.0.1");
  EXPECT_EQ(options.port, 6379);
  EXPECT_EQ(options.database, 0);
  EXPECT_EQ(options.prefix, "syncguard");
  EXPECT_EQ(options.username, "");
  EXPECT_EQ(options.password, "");
  EXPECT_FALSE(options.tls);
}

TEST(RedisUrl, ParsesUserPasswordHostPortAndDatabase) {
  const auto options = parse("redis://me:p%40ss:word@db.example:7000/3?prefix=app%3A&queue=5&keep_alive=1m");
  EXPECT_EQ(options.username, "me");
  EXPECT_EQ(options.password, "p@ss:word");
  EXPECT_EQ(options.host, "db.example");
  EXPECT_EQ(options.port, 7000);
  EXPECT_EQ(options.database, 3);
  EXPECT_EQ(options.prefix, "app:");
  EXPECT_EQ(options.queue, 5U);
  EXPECT_EQ(options.keep_alive, std::chrono::minutes(1));
  EXPECT_EQ(parse("redis://:secret@host").password, "secret");
  EXPECT_EQ(parse("redis://:secret@host").username, "");
  EXPECT_EQ(parse("redis://host/").database, 0);
  EXPECT_EQ(parse("redis://host?database=4").database, 4);
}

TEST(RedisUrl, ParsesIpv6Addresses) {
  EXPECT_EQ(parse("redis://[::1]:7000").host, "::1");
  EXPECT_EQ(parse("redis://[::1]:7000").port, 7000);
  EXPECT_EQ(parse("redis://[fe80::2]").port, 6379);
}

TEST(RedisUrl, ParsesSeveralAddresses) {
  const auto options = parse("redis://me:secret@a:7000,b,[::1]:7002/3");
  EXPECT_EQ(options.host, "a");
  EXPECT_EQ(options.port, 7000);
  ASSERT_EQ(options.more_addresses.size(), 2U);
  EXPECT_EQ(options.more_addresses[0].host, "b");
  EXPECT_EQ(options.more_addresses[0].port, 6379);
  EXPECT_EQ(options.more_addresses[1].host, "::1");
  EXPECT_EQ(options.more_addresses[1].port, 7002);
  EXPECT_EQ(options.username, "me");
  EXPECT_EQ(options.database, 3);
}

TEST(RedisUrl, ParsesSentinels) {
  const auto options = parse(
      "redis+sentinel://me:p%40ss@a:7000,b/my%2Fmaster/3?sentinel_username=guard&sentinel_password=s%26t"
      "&sentinel_timeout=2s&prefix=app");
  EXPECT_EQ(options.host, "a");
  EXPECT_EQ(options.port, 7000);
  ASSERT_EQ(options.more_addresses.size(), 1U);
  EXPECT_EQ(options.more_addresses[0].host, "b");
  EXPECT_EQ(options.more_addresses[0].port, 26379);
  EXPECT_EQ(options.username, "me");
  EXPECT_EQ(options.password, "p@ss");
  EXPECT_EQ(options.database, 3);
  ASSERT_TRUE(options.sentinel);
  EXPECT_EQ(options.sentinel->master, "my/master");
  EXPECT_EQ(options.sentinel->username, "guard");
  EXPECT_EQ(options.sentinel->password, "s&t");
  EXPECT_EQ(options.sentinel->timeout, std::chrono::seconds(2));
  EXPECT_FALSE(options.tls);
  EXPECT_EQ(parse("redis+sentinel://host/mymaster").port, 26379);
  EXPECT_EQ(parse("redis+sentinel://host/mymaster?database=2").database, 2);
  EXPECT_TRUE(parse("rediss+sentinel://host/mymaster?verify=false").tls);
  EXPECT_FALSE(parse("redis://host").sentinel);
}

TEST(RedisUrl, ParsesUnixSockets) {
  EXPECT_EQ(parse("redis+unix:/run/redis.sock").unix_socket, "/run/redis.sock");
  EXPECT_EQ(parse("redis+unix:///run/redis.sock?database=2").unix_socket, "/run/redis.sock");
  const auto options = parse("redis+unix://me:secret@/run/my%20redis.sock");
  EXPECT_EQ(options.unix_socket, "/run/my redis.sock");
  EXPECT_EQ(options.username, "me");
  EXPECT_EQ(options.password, "secret");
}

TEST(RedisUrl, ParsesTlsOptions) {
  const auto options = parse("rediss://host?verify=false&ca_file=/ca&server_name=other");
  ASSERT_TRUE(options.tls);
  EXPECT_FALSE(options.tls->verify);
  EXPECT_EQ(options.tls->ca_file, "/ca");
  EXPECT_EQ(options.tls->server_name, "other");
  EXPECT_TRUE(parse("rediss://host").tls->verify);
}

TEST(RedisUrl, RejectsInvalidUrlsWithoutRepeatingThem) {
  for (const std::string text : {"redis:host",
                                 "redis:/host",
                                 "redis://host:secret",
                                 "redis://host:0",
                                 "redis://host:65536",
                                 "redis://host/secret",
                                 "redis://me:12?secret@host?prefix=x",
                                 "redis+unix://me:p?secret@/run/r?prefix=x",
                                 "redis://host/2?database=3",
                                 "redis://host/-1",
                                 "redis://[::1",
                                 "redis://[::1]secret",
                                 "redis+unix:",
                                 "redis+unix://",
                                 "redis://host?ca_file=/x",
                                 "redis://host?verify=false",
                                 "redis+sentinel:host/m",
                                 "redis+sentinel://host",
                                 "redis+sentinel://host/",
                                 "redis+sentinel://host//3",
                                 "redis+sentinel://host/m/secret",
                                 "redis+sentinel://host/m?sentinel_timeout=secret",
                                 "redis+sentinel://host/m/2?database=3",
                                 "redis+sentinel://host/m?ca_file=/x",
                                 "redis://a,",
                                 "redis://a,,b",
                                 "redis://a,b:secret",
                                 "redis://host?sentinel_password=x",
                                 "redis://host?connections=0",
                                 "redis://host?connections=65",
                                 "redis://host?queue=0"}) {
    const auto error = error_of([&] { (void)parse(text); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument) << text;
    EXPECT_THAT(error->what(), ::testing::Not(::testing::HasSubstr("secret"))) << text;
  }
}

TEST(RedisUrl, InvalidOptionsAreRejected) {
  const auto refused = [](auto change) {
    RedisOptions options;
    change(options);
    expect_error(ErrorCode::invalid_argument, [&] { (void)make_redis_backend(options); });
  };
  refused([](RedisOptions& options) { options.host.clear(); });
  refused([](RedisOptions& options) { options.port = 0; });
  refused([](RedisOptions& options) { options.more_addresses = {{"host", 0}}; });
  refused([](RedisOptions& options) { options.sentinel.emplace(); });
  refused([](RedisOptions& options) {
    options.sentinel.emplace().master = "mymaster";
    options.sentinel->timeout = {};
  });
  refused([](RedisOptions& options) {
    options.sentinel.emplace().master = "mymaster";
    options.unix_socket = "/run/redis.sock";
  });
  refused([](RedisOptions& options) { options.database = -1; });
  refused([](RedisOptions& options) { options.connect_timeout = {}; });
  refused([](RedisOptions& options) { options.operation_timeout = {}; });
  refused([](RedisOptions& options) { options.keep_alive = {}; });
  refused([](RedisOptions& options) { options.keep_alive = std::chrono::hours(10); });
  refused([](RedisOptions& options) { options.client_name = "my client"; });
  refused([](RedisOptions& options) { options.connections = 0; });
  refused([](RedisOptions& options) { options.queue = 0; });
  refused([](RedisOptions& options) { options.prefix = std::string("a\0b", 3); });
}

TEST(RedisReply, IsReadFromAnyFragments) {
  const std::string bytes = "*4\r\n:1\r\n$3\r\na\r\n\r\n*1\r\n+OK\r\n$-1\r\n-ERR no\r\n";
  for (std::size_t piece = 1; piece < bytes.size(); ++piece) {
    ReplyReader reader;
    std::vector<Reply> replies;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.feed(std::string_view(bytes).substr(at, piece));
      while (auto reply = reader.next()) replies.push_back(std::move(*reply));
    }
    ASSERT_EQ(replies.size(), 2U) << piece;
    ASSERT_EQ(replies[0].elements.size(), 4U);
    EXPECT_EQ(replies[0].elements[0].integer, 1);
    EXPECT_EQ(replies[0].elements[1].text, "a\r\n");
    EXPECT_EQ(replies[0].elements[2].elements[0].text, "OK");
    EXPECT_EQ(replies[0].elements[3].kind, Reply::Kind::nil);
    EXPECT_TRUE(replies[1].is_error());
    EXPECT_EQ(replies[1].text, "ERR no");
  }
}

TEST(RedisReply, LimitsNumberOfElements) {
  const auto array = [](int elements) {
    std::string bytes = "*" + std::to_string(elements) + "\r\n";
    for (int i = 0; i < elements; ++i) bytes += ":1\r\n";
    return bytes;
  };
  ReplyReader reader;
  for (int again = 0; again < 3; ++again) {
    // The array itself counts as an element.
    reader.feed(array(ReplyReader::max_elements - 1));
    ASSERT_TRUE(reader.next());
    ASSERT_FALSE(reader.next());
  }
  reader.feed(array(ReplyReader::max_elements));
  EXPECT_THROW((void)reader.next(), redis::ProtocolError);
}

TEST(RedisReply, LimitsLength) {
  ReplyReader reader;
  const std::string half(ReplyReader::max_bytes / 2, 'x');
  reader.feed("+" + half.substr(1));
  EXPECT_FALSE(reader.next());
  reader.feed(half.substr(2) + "\r\n");
  EXPECT_TRUE(reader.next());
  reader.feed(half);
  EXPECT_THROW(reader.feed(half + "x"), redis::ProtocolError);
}

TEST(RedisRequest, EncodesArgumentsWithLengths) {
  EXPECT_EQ(redis::format_command({"GET", "a\r\nb", ""}), "*3\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n");
}

TEST(RedisServerError, ParsesClusterRedirection) {
  const auto moved = redis::moved_to("MOVED 3999 10.0.0.1:6381");
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->host, "10.0.0.1");
  EXPECT_EQ(moved->port, 6381);
  EXPECT_EQ(redis::moved_to("MOVED 3999 :6381")->host, "");
  EXPECT_EQ(redis::moved_to("MOVED 3999 fe80::1:6381")->host, "fe80::1");
  for (const char* broken :
       {"MOVED", "MOVED 3999", "MOVED 3999 host:", "MOVED 3999 host:0", "MOVED 1 host:99999", "ASK 1 h:1"}) {
    EXPECT_FALSE(redis::moved_to(broken)) << broken;
  }
  const auto asked = redis::asked_at("ASK 3999 10.0.0.1:6381");
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->host, "10.0.0.1");
  EXPECT_EQ(asked->port, 6381);
  EXPECT_FALSE(redis::asked_at("MOVED 3999 10.0.0.1:6381"));
}

TEST(RedisServerError, DoesNotRepeatServerMessage) {
  const auto error = redis::server_error("NOPERM this user has no access to secret-key");
  EXPECT_EQ(error.code(), ErrorCode::auth_failed);
  EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("secret-key")));
  try {
    std::rethrow_exception(error.context().cause);
  } catch (const std::exception& cause) {
    EXPECT_THAT(cause.what(), ::testing::HasSubstr("secret-key"));
  }
}

}  // namespace
}  // namespace syncguard::testing
