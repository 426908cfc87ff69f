#include "support/expect_error.hpp"

#include <syncguard/lock_id.hpp>

#include <gtest/gtest.h>

#include <set>

namespace syncguard {
namespace {

TEST(LockId, GeneratesDistinctWellFormedIds) {
  std::set<LockId> seen;
  for (int i = 0; i < 1000; ++i) {
    const LockId id = LockId::generate();
    EXPECT_TRUE(LockId::is_valid(id.view()));
    EXPECT_EQ(LockId(id.str()), id);
    EXPECT_TRUE(seen.insert(id).second);
  }
}

TEST(LockId, RejectsOtherForms) {
  for (const std::string_view text : {"", "short", "0123456789012345678901+",
                                      "012345678901234567890=", "01234567890123456789012", "012345678901234567890 "}) {
    EXPECT_FALSE(LockId::is_valid(text));
    testing::expect_error(ErrorCode::invalid_argument, [&] { (void)LockId(text); });
  }
}

}  // namespace
}  // namespace syncguard
