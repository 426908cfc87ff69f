#include "command/lock_history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

namespace syncguard::command {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Timestamp start{1'000'000ms};

ListedLock lock_of(const std::string& key, const std::string& holder, std::uint64_t fence,
                   Timestamp expires_at = start + 30s) {
  return {.key = Key(key),
          .expires_at = expires_at,
          .acquired_at = start,
          .fence = Fence(fence),
          .holder = holder,
          .waiters = 0};
}

Scan scan_of(std::vector<ListedLock> locks, Timestamp now = start) {
  Scan scan;
  scan.add({.locks = std::move(locks), .cursor = "", .now = now});
  return scan;
}

TEST(LockHistory, FirstScanSetsLocksWithoutChanges) {
  LockHistory history;
  const auto update = history.apply(scan_of({lock_of("a", "web", 1)}));
  EXPECT_THAT(update.set, ElementsAre(lock_of("a", "web", 1)));
  EXPECT_THAT(update.changes, IsEmpty());
  EXPECT_FALSE(update.is_empty());
}

TEST(LockHistory, FirstScanIsReportedEvenIfEmpty) {
  LockHistory history;
  EXPECT_FALSE(history.apply(scan_of({})).is_empty());
  EXPECT_TRUE(history.apply(scan_of({})).is_empty());
}

TEST(LockHistory, ReportsAcquiredPassedAndReleased) {
  LockHistory history;
  history.apply(scan_of({lock_of("b", "web", 1), lock_of("c", "web", 2)}));
  const auto update = history.apply(scan_of({lock_of("a", "new", 3), lock_of("b", "other", 4)}, start + 1s));
  EXPECT_THAT(update.set, ElementsAre(lock_of("a", "new", 3), lock_of("b", "other", 4)));
  EXPECT_THAT(update.removed, ElementsAre("c"));
  const auto at = start + 1s;
  EXPECT_THAT(update.changes, ElementsAre(LockChange{at, "a", "new", Fence(3), "", Fence()},
                                          LockChange{at, "b", "other", Fence(4), "web", Fence(1)},
                                          LockChange{at, "c", "", Fence(), "web", Fence(2)}));
  EXPECT_THAT(history.changes(), SizeIs(3));
  EXPECT_THAT(history.latest().locks, SizeIs(2));
}

TEST(LockHistory, ExtensionIsSetButNoChange) {
  LockHistory history;
  history.apply(scan_of({lock_of("a", "web", 1)}));
  const auto update = history.apply(scan_of({lock_of("a", "web", 1, start + 60s)}));
  EXPECT_THAT(update.set, SizeIs(1));
  EXPECT_THAT(update.changes, IsEmpty());
}

TEST(LockHistory, UnchangedLocksAreNotReported) {
  LockHistory history;
  history.apply(scan_of({lock_of("a", "web", 1)}));
  EXPECT_TRUE(history.apply(scan_of({lock_of("a", "web", 1)}, start + 1s)).is_empty());
  EXPECT_EQ(history.latest().now, start + 1s);
}

TEST(LockHistory, KeepsTheLatestChanges) {
  LockHistory history;
  history.apply(scan_of({}));
  for (std::uint64_t fence = 1; fence <= LockHistory::max_changes + 10; ++fence) {
    history.apply(scan_of({lock_of("a", "web", fence)}));
  }
  ASSERT_THAT(history.changes(), SizeIs(LockHistory::max_changes));
  EXPECT_EQ(history.changes().back().fence, Fence(LockHistory::max_changes + 10));
}

// A key beyond those that a scan keeps may be locked all the time.
TEST(LockHistory, KeysThatAScanLeftOutDoNotChange) {
  const auto full_scan = [](std::initializer_list<const char*> more) {
    std::vector<ListedLock> locks;
    for (std::size_t i = 0; i < Scan::max_locks; ++i) {
      char key[16];
      std::snprintf(key, sizeof key, "k%06zu", i);
      locks.push_back(lock_of(key, "web", i + 1));
    }
    for (const char* key : more) locks.push_back(lock_of(key, "web", 1));
    return scan_of(std::move(locks));
  };
  LockHistory history;
  history.apply(full_scan({}));
  auto update = history.apply(full_scan({"a"}));
  EXPECT_THAT(update.removed, SizeIs(1)) << "no longer shown";
  ASSERT_THAT(update.changes, SizeIs(1)) << "but not free";
  EXPECT_EQ(update.changes.front().key, "a");
  update = history.apply(full_scan({}));
  ASSERT_THAT(update.changes, SizeIs(1));
  EXPECT_EQ(update.changes.front().previous_fence, Fence(1));
}

TEST(Scan, LockThatAppearsTwiceCountsOnce) {
  auto scan = scan_of({lock_of("a", "old", 1)});
  scan.add({.locks = {lock_of("a", "new", 2)}, .cursor = "", .now = start});
  EXPECT_EQ(scan.total, 1U);
  EXPECT_EQ(scan.locks.at("a").holder, "new");
}

TEST(Scan, KeepsTheSmallestKeysAndCountsAll) {
  Scan scan;
  std::vector<ListedLock> locks;
  for (std::size_t i = 0; i < Scan::max_locks + 5; ++i) {
    char key[16];
    std::snprintf(key, sizeof key, "k%06zu", Scan::max_locks + 5 - i);
    locks.push_back(lock_of(key, "web", i + 1));
  }
  scan.add({.locks = std::move(locks), .cursor = "", .now = start});
  EXPECT_EQ(scan.total, Scan::max_locks + 5);
  EXPECT_THAT(scan.locks, SizeIs(Scan::max_locks));
  EXPECT_EQ(scan.locks.begin()->first, "k000001");
}

}  // namespace
}  // namespace syncguard::command
