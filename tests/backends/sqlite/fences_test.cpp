// Fences on an SQLite database that loses its newest writes.

#include "fixture.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;

struct SqliteFences : public Sqlite {
  // The newest of five fences of one key.
  [[nodiscard]] Fence grant_some() const {
    auto locks = client();
    Fence newest;
    for (int i = 0; i < 5; ++i) {
      const auto fence = locks.acquire("key").fence();
      EXPECT_GT(fence, newest);
      newest = fence;
    }
    locks.close();
    // Several grants within a millisecond put the counter ahead of the clock.
    std::this_thread::sleep_for(10ms);
    return newest;
  }
  void remove_database() const {
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path.string() + suffix);
  }
};

TEST_F(SqliteFences, GrowAfterRestoreOfOldFile) {
  const auto backup = folder.path() / "copy.db";
  (void)grant_some();
  SqliteClient{path}("VACUUM INTO '" + backup.string() + "'");
  const auto newest = grant_some();
  remove_database();
  std::filesystem::copy_file(backup, path);
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  ASSERT_LT(std::stoull(SqliteClient{path}("SELECT fence FROM syncguard_fence_counters")), newest.value());
  EXPECT_GT(grant_some(), newest);
}

TEST_F(SqliteFences, GrowAfterRestoreWhileClientIsOpen) {
  const auto backup = folder.path() / "copy.db";
  (void)grant_some();
  SqliteClient{path}("VACUUM INTO '" + backup.string() + "'");
  auto locks = client();
  const auto newest = locks.acquire("key").fence();
  std::this_thread::sleep_for(10ms);
  remove_database();
  std::filesystem::copy_file(backup, path);
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  EXPECT_GT(locks.acquire("key").fence(), newest);
}

TEST_F(SqliteFences, GrowAfterFileWasRemoved) {
  const auto newest = grant_some();
  remove_database();
  EXPECT_GT(grant_some(), newest);
}

TEST_F(SqliteFences, GrowAfterCounterWasDeleted) {
  const auto newest = grant_some();
  SqliteClient{path}("DELETE FROM syncguard_fence_counters");
  EXPECT_GT(grant_some(), newest);
}

TEST_F(SqliteFences, CountOnRequest) {
  Locks locks(make_sqlite_backend({.path = path, .fences = FenceSource::counter}), with_long_timeout());
  EXPECT_EQ(locks.acquire("key").fence(), Fence(1));
  EXPECT_EQ(locks.acquire("key").fence(), Fence(2));
}

}  // namespace
}  // namespace syncguard::testing
