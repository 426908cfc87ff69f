#include "expect_error.hpp"

#include <syncguard/memory.hpp>
#include <syncguard/registry.hpp>
#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace syncguard {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;

TEST(BackendUrl, TakesOptionsApartAndDecodesThem) {
  BackendUrl url("memory:a%20name?text=x%26y&wait=1m30s&count=7&flag=true");
  EXPECT_EQ(url.scheme(), "memory");
  EXPECT_EQ(url.rest(), "a%20name");
  EXPECT_EQ(BackendUrl::decode(url.rest()), "a name");
  EXPECT_EQ(url.take_text("text"), "x&y");
  EXPECT_EQ(url.take_duration("wait"), 90s);
  EXPECT_EQ(url.take_integer("count", 1, 10), 7);
  EXPECT_EQ(url.take_flag("flag"), true);
  EXPECT_EQ(url.take_text("absent"), std::nullopt);
  url.expect_no_more_options();
}

TEST(BackendUrl, RefusesWhatIsNoUrl) {
  for (const std::string_view text : {"", "memory", ":x", "Memory:", "mem ory:", "memory:?a", "memory:?=x",
                                      "memory:?a=%4", "memory:?a=%zz", "memory:?a=1&a=2"}) {
    expect_error(ErrorCode::invalid_argument, [&] { (void)BackendUrl(text); });
  }
}

TEST(BackendUrl, NamesAWrongValueTogetherWithWhatIsExpected) {
  BackendUrl url("memory:?wait=soon&count=11&flag=maybe");
  const auto message_of = [](auto take) {
    const auto error = error_of(take);
    EXPECT_TRUE(error && error->code() == ErrorCode::invalid_argument);
    return error ? std::string(error->what()) : std::string();
  };
  EXPECT_THAT(message_of([&] { (void)url.take_duration("wait"); }),
              HasSubstr("'wait' is a duration such as 500ms, 30s, 5m or 1h30m, not 'soon'"));
  EXPECT_THAT(message_of([&] { (void)url.take_integer("count", 1, 10); }),
              HasSubstr("'count' is a whole number from 1 to 10, not '11'"));
  EXPECT_THAT(message_of([&] { (void)url.take_flag("flag"); }), HasSubstr("'flag' is true or false, not 'maybe'"));
}

TEST(BackendUrl, NeverRepeatsAUrlThatMayContainAPassword) {
  for (const std::string_view text :
       {"etcd://me:hunter2@host", "Redis://me:hunter2@host", "memory:hunter2?x=hunter2"}) {
    const auto error = error_of([&] { (void)open(text); });
    ASSERT_TRUE(error);
    EXPECT_EQ(std::string(error->what()).find("hunter2"), std::string::npos) << error->what();
  }
}

TEST(Registry, NamesWhatItDoesNotKnowTogetherWithWhatItKnows) {
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

TEST(Registry, OpensABackendOfTheApplicationsOwn) {
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

TEST(Registry, MemoryUrlsWithTheSameNameShareAStore) {
  auto one = open("memory:shared");
  auto other = open("memory:shared");
  auto apart = open("memory:");
  const auto lease = one.try_acquire("key");
  EXPECT_FALSE(other.try_acquire("key"));
  EXPECT_TRUE(apart.try_acquire("key"));
}

}  // namespace
}  // namespace syncguard
