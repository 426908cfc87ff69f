#include "core/duration.hpp"

#include <gtest/gtest.h>

namespace syncguard::core {
namespace {

using namespace std::chrono_literals;

TEST(Duration, ReadsWhatPeopleWrite) {
  EXPECT_EQ(parse_duration("500ms"), 500ms);
  EXPECT_EQ(parse_duration("30s"), 30s);
  EXPECT_EQ(parse_duration("5m"), 5min);
  EXPECT_EQ(parse_duration("1h30m"), 90min);
  EXPECT_EQ(parse_duration("1h2m3s4ms"), 1h + 2min + 3s + 4ms);
  EXPECT_EQ(parse_duration("0s"), 0s);
}

TEST(Duration, RefusesEverythingElse) {
  for (const std::string_view text : {"", "5", "s", "5x", "-5s", "5s5m", "5s5s", " 5s", "5 s", "1.5s", "5S", "+5s",
                                      "5ms3s", "99999999999999999999h", "9999999999999999h"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace syncguard::core
