// diagnose() and setup() on SQLite.

#include "fixture.hpp"
#include "support/findings.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

namespace syncguard::testing {
namespace {

using SqliteDiagnosis = Sqlite;

TEST_F(SqliteDiagnosis, PassesOnceFileExists) {
  auto locks = client();
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "file"), ::testing::StartsWith("fine: does not exist yet"));
  EXPECT_FALSE(std::filesystem::exists(path.parent_path())) << "diagnose() must create nothing";
  EXPECT_THAT(locks.admin().setup(), ::testing::HasSubstr("was created"));
  EXPECT_THAT(locks.admin().setup(), ::testing::HasSubstr("already exists"));
  expect_fine(locks,
              {"file system", "names of the file", "permissions of the file", "permissions of the folder", "reachable",
               "latency", "writable", "journal", "schema", "integrity", "fences", "fence counters"});
}

TEST_F(SqliteDiagnosis, PassesAfterSetupScriptOfAdministrator) {
  std::filesystem::create_directories(path.parent_path());
  std::filesystem::permissions(path.parent_path(), std::filesystem::perms(0700));
  auto locks = client();
  for (int i = 0; i < 2; ++i) EXPECT_NO_THROW(SqliteClient{path}(locks.admin().setup_script())) << "it can be repeated";
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  expect_fine(locks, {"file system", "permissions of the file", "permissions of the folder", "reachable", "latency",
                      "writable", "journal", "schema", "integrity", "fences", "fence counters"});
  EXPECT_TRUE(locks.try_acquire("key"));
}

TEST_F(SqliteDiagnosis, ReportsCountersAheadOfClock) {
  auto locks = client();
  for (int i = 0; i < 3; ++i) (void)locks.acquire("key " + std::to_string(i));
  EXPECT_EQ(verdict_on(locks.admin().diagnose(), "fence counters"), "fine: none is ahead of the clock");
  SqliteClient{path}("UPDATE syncguard_fence_counters SET fence = 50000000000001 WHERE fence_key = 'fence:key 1'");
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "fence counters"),
              ::testing::StartsWith("warning: ahead of the clock, up to 050000000000001"));
  Locks counting(make_sqlite_backend({.path = path, .fences = FenceSource::counter}), with_long_timeout());
  EXPECT_THAT(verdict_on(counting.admin().diagnose(), "fences"), ::testing::StartsWith("warning: counted only"));
}

TEST_F(SqliteDiagnosis, ReportsPermissiveFileModes) {
  auto locks = client();
  (void)locks.admin().setup();
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "permissions of the file"), ::testing::StartsWith("failure: 0644"));
  std::filesystem::permissions(path, std::filesystem::perms(0660));
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "permissions of the file"), ::testing::StartsWith("warning: 0660"));
  std::filesystem::permissions(path.parent_path(), std::filesystem::perms(0777));
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "permissions of the folder"),
              ::testing::StartsWith("failure: 0777"));
}

TEST_F(SqliteDiagnosis, SetupRestoresMissingIndexAndKeepsFences) {
  auto locks = client();
  const auto before = locks.acquire("k").fence();
  SqliteClient{path}("DROP INDEX idx_syncguard_locks_lock_id");
  const auto advice = [&] {
    for (const auto& finding : locks.admin().diagnose()) {
      if (finding.check == "schema") return finding.advice;
    }
    return std::string("no such check");
  };
  EXPECT_THAT(advice(), ::testing::HasSubstr("`syncguard setup`"));
  (void)locks.admin().setup();
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "schema"), ::testing::StartsWith("fine"));
  EXPECT_GT(locks.acquire("k").fence(), before);

  SqliteClient{path}("CREATE TABLE theirs (x)");
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "schema"), ::testing::StartsWith("warning"));
  EXPECT_THAT(advice(), ::testing::HasSubstr("never the file"));
  SqliteClient{path}("DROP TABLE syncguard_fence_counters");
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "schema"),
              ::testing::StartsWith("failure: syncguard_fence_counters"));
  EXPECT_THAT(advice(), ::testing::StartsWith("restore a backup"));
}

TEST_F(SqliteDiagnosis, ReportsImpossiblePath) {
  std::filesystem::create_directories(path.parent_path());
  path = path.parent_path() / std::string(300, 'n');
  EXPECT_THAT(verdict_on(client().admin().diagnose(), "file"), ::testing::StartsWith("failure: cannot be reached"));
}

TEST_F(SqliteDiagnosis, ReportsMissingIndexDamagedAndForeignFile) {
  auto locks = client();
  (void)locks.admin().setup();
  SqliteClient{path}("DROP INDEX idx_syncguard_locks_lock_id");
  EXPECT_THAT(verdict_on(locks.admin().diagnose(), "schema"),
              ::testing::StartsWith("failure: idx_syncguard_locks_lock_id"));
  locks.close();

  std::filesystem::remove_all(path.parent_path());
  std::filesystem::create_directories(path.parent_path());
  SqliteClient{path}("CREATE TABLE theirs (x)");
  EXPECT_THAT(verdict_on(client().admin().diagnose(), "configuration"), ::testing::StartsWith("failure"));

  std::filesystem::remove_all(path.parent_path());
  {
    auto filled = client();
    for (int i = 0; i < 200; ++i) (void)filled.acquire("key" + std::to_string(i)).detach();
  }
  SqliteClient{path}("PRAGMA wal_checkpoint(TRUNCATE)");
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(3 * 4096);
    for (int i = 0; i < 4096; ++i) file.put('\x5a');
  }
  const auto findings = client().admin().diagnose();
  EXPECT_TRUE(std::ranges::any_of(findings, [](const Finding& finding) {
    return finding.verdict == Finding::Verdict::failure;
  })) << verdict_on(findings, "integrity");
}

}  // namespace
}  // namespace syncguard::testing
