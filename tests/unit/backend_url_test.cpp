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

TEST(BackendUrl, NamesTheOptionWhoseValueIsWrongButNotTheValue) {
  BackendUrl url("memory:?wait=hunter2&count=hunter2&flag=hunter2");
  for (const auto& error :
       {error_of([&] { (void)url.take_duration("wait"); }), error_of([&] { (void)url.take_integer("count", 1, 10); }),
        error_of([&] { (void)url.take_flag("flag"); })}) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
    EXPECT_EQ(std::string(error->what()).find("hunter2"), std::string::npos) << error->what();
  }
  const auto error = error_of([&] { (void)BackendUrl("memory:?count=11").take_integer("count", 1, 10); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("'count' is a whole number from 1 to 10"));
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
