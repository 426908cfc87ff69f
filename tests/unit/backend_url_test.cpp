#include "support/expect_error.hpp"
#include "support/is_granted.hpp"

#include <syncguard/memory.hpp>
#include <syncguard/registry.hpp>
#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace syncguard {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;

TEST(BackendUrl, SplitsAndDecodesOptions) {
  BackendUrl url("memory:a%20name?text=x%26y&wait=1m30s&count=7&flag=true&fences=counter");
  EXPECT_EQ(url.scheme(), "memory");
  EXPECT_EQ(url.rest(), "a%20name");
  EXPECT_EQ(BackendUrl::decode(url.rest()), "a name");
  EXPECT_EQ(url.take_text("text"), "x&y");
  EXPECT_EQ(url.take_duration("wait"), 90s);
  EXPECT_EQ(url.take_integer("count", 1, 10), 7);
  EXPECT_EQ(url.take_flag("flag"), true);
  EXPECT_EQ(url.take_choice("fences", {"clock", "counter"}), "counter");
  EXPECT_EQ(url.take_text("absent"), std::nullopt);
  url.expect_no_more_options();
}

TEST(BackendUrl, RejectsInvalidUrls) {
  for (const std::string_view text : {"", "memory", ":x", "Memory:", "mem ory:", "memory:?a", "memory:?=x",
                                      "memory:?a=%4", "memory:?a=%zz", "memory:?a=x%00y", "memory:?a=1&a=2"}) {
    expect_error(ErrorCode::invalid_argument, [&] { (void)BackendUrl(text); });
  }
}

TEST(BackendUrl, RejectsNulThatWouldCutPathShort) {
  const auto error = error_of([] { (void)BackendUrl::decode("/var/lib/a%00b.db"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), HasSubstr("%00"));
}

// The value may be the rest of a password that contains an unescaped question mark.
TEST(BackendUrl, ErrorNamesOptionAndExpectedValueWithoutActualOne) {
  BackendUrl url("memory:?wait=hunter2&count=hunter2&flag=hunter2&fences=hunter2");
  const auto message_of = [](auto take) {
    const auto error = error_of(take);
    EXPECT_TRUE(error && error->code() == ErrorCode::invalid_argument);
    return error ? std::string(error->what()) : std::string();
  };
  const auto wait = message_of([&] { (void)url.take_duration("wait"); });
  const auto count = message_of([&] { (void)url.take_integer("count", 1, 10); });
  const auto flag = message_of([&] { (void)url.take_flag("flag"); });
  const auto choice = message_of([&] { (void)url.take_choice("fences", {"clock", "counter"}); });
  EXPECT_THAT(wait, HasSubstr("'wait' must be a duration such as 500ms, 30s, 5m, 1h30m or 1d"));
  EXPECT_THAT(count, HasSubstr("'count' must be a whole number from 1 to 10"));
  EXPECT_THAT(flag, HasSubstr("'flag' must be true or false"));
  EXPECT_THAT(choice, HasSubstr("'fences' must be clock or counter"));
  EXPECT_THAT(wait + count + flag + choice, ::testing::Not(HasSubstr("hunter2")));
}

TEST(BackendUrl, ErrorListsEachKnownOptionOnce) {
  BackendUrl url("memory:?unknown=1");
  (void)url.take_text("operation_timeout");
  (void)url.take_flag("flag");
  (void)url.take_text("operation_timeout");
  const auto error = error_of([&] { url.expect_no_more_options(); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), ::testing::EndsWith("known are flag, operation_timeout"));
}

TEST(BackendUrl, ErrorNeverRepeatsUrlThatMayContainPassword) {
  for (const std::string_view text :
       {"etcd://me:hunter2@host", "Redis://me:hunter2@host", "memory:hunter2?x=hunter2"}) {
    const auto error = error_of([&] { (void)open(text); });
    ASSERT_TRUE(error);
    EXPECT_EQ(std::string(error->what()).find("hunter2"), std::string::npos) << error->what();
  }
}

// If these URLs were accepted, a part of the password would become a host, a port or an option, which error messages
// contain.
TEST(BackendUrl, RejectsUnescapedPassword) {
  for (const std::string_view text :
       {"postgres://me:hun@ter2@host/db", "postgres://me:hun/ter2@host/db", "postgres://me:12/ter2@host/db",
        "postgres://me:hun%ter2@host/db", "postgres://me:hun?ter2=x@host/db", "redis://me:hun/ter2@host"}) {
    const auto error = error_of([&] { const BackendUrl url(text); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument) << text;
    EXPECT_THAT(error->what(), HasSubstr("%")) << text;
    EXPECT_THAT(error->what(), ::testing::Not(::testing::HasSubstr("ter2"))) << text;
    EXPECT_THAT(error->what(), ::testing::Not(::testing::HasSubstr("hun"))) << text;
  }
  for (const std::string_view text :
       {"postgres://me:hun%40ter2@host:5432/db", "postgres://host:5432/db?user=me@tenant", "sqlite:/home/a@b/locks.db",
        "sqlite:///home/a@b/locks.db", "postgres://h1:1,h2/db?user=me@tenant",
        "postgres://[::1]:5432/db?user=me@tenant", "firestore://example.com:project", "redis+unix:///run/a@b.sock"}) {
    EXPECT_FALSE(error_of([&] { const BackendUrl url(text); })) << text;
  }
}

TEST(Registry, ErrorNamesUnknownSchemeAndKnownOnes) {
  const auto scheme = error_of([] { (void)open("memroy:"); });
  ASSERT_TRUE(scheme);
  EXPECT_EQ(scheme->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(scheme->what(), HasSubstr("'memroy:'"));
  EXPECT_THAT(scheme->what(), HasSubstr("memory:"));

  const auto option = error_of([] { (void)open("memory:?cleanup=true"); });
  ASSERT_TRUE(option);
  EXPECT_THAT(option->what(), HasSubstr("'cleanup'"));
  EXPECT_THAT(option->what(), HasSubstr("cleanup_in_is_locked"));
  EXPECT_THAT(option->what(), HasSubstr("operation_timeout"));
}

TEST(Registry, EveryStoreThatOutlivesItsClientsTakesFences) {
  const auto built_in = registered_schemes();
  for (const std::string url : {"redis://localhost", "sqlite:/nowhere/locks.db", "postgres://localhost/db",
                                "firestore://project?emulator=localhost:1"}) {
    if (std::ranges::find(built_in, url.substr(0, url.find(':'))) == built_in.end()) continue;
    const auto capabilities_of = [&](const std::string& option) {
      return open(url + (url.find('?') == std::string::npos ? "?" : "&") + "fences=" + option).capabilities();
    };
    const auto error = error_of([&] { (void)capabilities_of("dice"); });
    ASSERT_TRUE(error) << url;
    EXPECT_THAT(error->what(), HasSubstr("'fences' must be clock or counter")) << url;
    EXPECT_EQ(capabilities_of("counter").fences, FenceSource::counter) << url;
  }
}

TEST(Registry, OpensApplicationDefinedBackend) {
  int made = 0;
  register_backend("custom", [&](BackendUrl& url, const BackendContext&) {
    EXPECT_EQ(url.take_text("colour"), "red");
    ++made;
    return make_memory_backend();
  });
  auto locks = open("custom:whatever?colour=red");
  EXPECT_TRUE(locks.try_acquire("key"));
  EXPECT_EQ(made, 1);
  EXPECT_THAT(registered_schemes(), ::testing::IsSupersetOf({"custom", "memory"}));
}

TEST(Registry, MemoryUrlsWithSameNameShareStore) {
  auto one = open("memory:shared");
  auto other = open("memory:shared");
  auto apart = open("memory:");
  const auto lease = one.try_acquire("key");
  EXPECT_FALSE(testing::is_granted(other.try_acquire("key")));
  EXPECT_TRUE(apart.try_acquire("key"));
}

}  // namespace
}  // namespace syncguard
