#include "locks/in_doubt_acquires.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace syncguard::detail {
namespace {

using namespace std::chrono_literals;
using Entry = InDoubtAcquires::Entry;

constexpr InDoubtAcquires::Time at(std::chrono::seconds time) { return InDoubtAcquires::Time(time); }

TEST(InDoubtAcquires, DropsEntryThatExpiresSoonestIfFull) {
  InDoubtAcquires acquires(2);
  const Entry late(acquires, at(30s));
  const Entry soon(acquires, at(10s));
  EXPECT_FALSE(soon.dropped().stop_requested());
  const Entry later(acquires, at(40s));
  EXPECT_TRUE(soon.dropped().stop_requested());
  EXPECT_EQ(later.dropped_so_far(), 1U);
  EXPECT_FALSE(late.dropped().stop_requested());
  EXPECT_FALSE(later.dropped().stop_requested());
  EXPECT_EQ(acquires.size(), 2U);
}

TEST(InDoubtAcquires, DropsNewEntryIfItExpiresSoonest) {
  InDoubtAcquires acquires(1);
  const Entry old(acquires, at(30s));
  {
    const Entry fresh(acquires, at(10s));
    EXPECT_TRUE(fresh.dropped().stop_requested());
    EXPECT_EQ(fresh.dropped_so_far(), 1U);
  }
  EXPECT_FALSE(old.dropped().stop_requested());
  EXPECT_EQ(acquires.size(), 1U);
  const Entry another(acquires, at(10s));
  EXPECT_EQ(another.dropped_so_far(), 2U) << "the total of dropped entries";
}

TEST(InDoubtAcquires, ForgetsRemovedEntries) {
  InDoubtAcquires acquires(1);
  std::optional<Entry> first(std::in_place, acquires, at(10s));
  first.reset();
  EXPECT_EQ(acquires.size(), 0U);
  const Entry second(acquires, at(20s));
  EXPECT_EQ(second.dropped_so_far(), 0U);
}

TEST(InDoubtAcquires, DistinguishesEntriesWithEqualExpiry) {
  InDoubtAcquires acquires(2);
  std::optional<Entry> first(std::in_place, acquires, at(10s));
  const Entry second(acquires, at(10s));
  first.reset();
  EXPECT_EQ(acquires.size(), 1U);
  EXPECT_FALSE(second.dropped().stop_requested());
}

}  // namespace
}  // namespace syncguard::detail
