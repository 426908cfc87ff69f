// The atomic steps of the embedded backend, without threads.

#include "async/system_now.hpp"
#include "backends/sqlite/file.hpp"
#include "backends/sqlite/store.hpp"
#include "temporary_folder.hpp"

#include <gtest/gtest.h>
#include <linux/magic.h>

#include <chrono>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;

// The numbers by their names, where the system has them.
TEST(SqliteFile, KnowsFileSystemsOfTheNetwork) {
  for (const std::int64_t type :
       {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, AFS_SUPER_MAGIC, CODA_SUPER_MAGIC, V9FS_MAGIC, OCFS2_SUPER_MAGIC}) {
    EXPECT_EQ(sqlite::file_system_of_type(type), sqlite::FileSystem::networked) << std::hex << type;
  }
  for (const std::int64_t type : {0xFE534D42, 0xFF534D42}) {
    EXPECT_EQ(sqlite::file_system_of_type(type), sqlite::FileSystem::networked) << "SMB 2 and CIFS";
  }
  for (const std::int64_t type : {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC}) {
    EXPECT_EQ(sqlite::file_system_of_type(type), sqlite::FileSystem::local) << std::hex << type;
  }
  EXPECT_EQ(sqlite::file_system_of_type(FUSE_SUPER_MAGIC), sqlite::FileSystem::fuse);
  EXPECT_EQ(sqlite::file_system_of("/proc"), sqlite::FileSystem::local);
}

TEST(SqliteStore, OneLookFindsEveryQueueOfAFreeKey) {
  const TemporaryFolder folder;
  sqlite::Store store(folder.path() / "locks.db",
                      {.keep_waiting = [] { return false; }, .may_write = [] { return true; }});
  const auto holder = LockId::generate();
  const std::vector<LockId> waiters = {LockId::generate(), LockId::generate(), LockId::generate()};
  (void)store.acquire({"held", holder, 60s});
  store.join("held", waiters[0]);
  EXPECT_TRUE(store.free_queues().empty());
  store.join("free", waiters[1]);
  store.join("free", waiters[2]);
  const auto now = async::system_now();
  auto queues = store.free_queues();
  ASSERT_EQ(queues.size(), 1U);
  EXPECT_TRUE(sqlite::Store::prospect(queues["free"], waiters[1], now).try_now);
  const auto behind = sqlite::Store::prospect(queues["free"], waiters[2], now);
  EXPECT_FALSE(behind.try_now);
  EXPECT_TRUE(behind.stalled);
  EXPECT_TRUE(behind.look_again_at);

  (void)store.release(holder);
  queues = store.free_queues();
  ASSERT_EQ(queues.size(), 2U);
  // In the midst of that turn, however long it took to come here.
  ASSERT_TRUE(queues["held"].front().turn_until);
  const auto in_the_turn = *queues["held"].front().turn_until - 10ms;
  EXPECT_TRUE(sqlite::Store::prospect(queues["held"], waiters[0], in_the_turn).try_now) << "it has a turn";
  const auto stranger = sqlite::Store::prospect(queues["held"], waiters[1], in_the_turn);
  EXPECT_FALSE(stranger.try_now);
  EXPECT_FALSE(stranger.stalled) << "somebody has a turn";
}

}  // namespace
}  // namespace syncguard::testing
