// What the embedded backend says about itself, and how it is set up.

#include "findings.hpp"
#include "sqlite_fixture.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

namespace syncguard::testing {
namespace {

using SqliteDiagnosis = Sqlite;

TEST_F(SqliteDiagnosis, FindsItselfFitOnceItWasMade) {
  auto locks = client();
  EXPECT_THAT(verdict_on(locks.diagnose(), "file"), ::testing::StartsWith("fine: not there yet"));
  EXPECT_FALSE(std::filesystem::exists(path.parent_path())) << "a look makes nothing";
  EXPECT_THAT(locks.setup(), ::testing::HasSubstr("was made"));
  EXPECT_THAT(locks.setup(), ::testing::HasSubstr("was there already"));
  expect_fine(locks, {"file system", "permissions of the file", "permissions of the folder", "reachable", "latency",
                      "writable", "journal", "schema", "integrity"});
}

TEST_F(SqliteDiagnosis, FindsPermissionsThatAreTooWide) {
  auto locks = client();
  (void)locks.setup();
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  EXPECT_THAT(verdict_on(locks.diagnose(), "permissions of the file"), ::testing::StartsWith("failure: 0644"));
  std::filesystem::permissions(path, std::filesystem::perms(0660));
  EXPECT_THAT(verdict_on(locks.diagnose(), "permissions of the file"), ::testing::StartsWith("warning: 0660"));
  std::filesystem::permissions(path.parent_path(), std::filesystem::perms(0777));
  EXPECT_THAT(verdict_on(locks.diagnose(), "permissions of the folder"), ::testing::StartsWith("failure: 0777"));
}

TEST_F(SqliteDiagnosis, MakesAMissingIndexAgainAndKeepsItsFences) {
  auto locks = client();
  const auto before = locks.acquire("k").fence();
  SqliteOutsider{path}("DROP INDEX idx_syncguard_locks_lock_id");
  const auto advice = [&] {
    for (const auto& finding : locks.diagnose()) {
      if (finding.check == "schema") return finding.advice;
    }
    return std::string("no such check");
  };
  EXPECT_THAT(advice(), ::testing::HasSubstr("`syncguard setup`"));
  (void)locks.setup();
  EXPECT_THAT(verdict_on(locks.diagnose(), "schema"), ::testing::StartsWith("fine"));
  EXPECT_GT(locks.acquire("k").fence(), before);

  SqliteOutsider{path}("CREATE TABLE theirs (x)");
  EXPECT_THAT(verdict_on(locks.diagnose(), "schema"), ::testing::StartsWith("warning"));
  EXPECT_THAT(advice(), ::testing::HasSubstr("never the file"));
  SqliteOutsider{path}("DROP TABLE syncguard_fence_counters");
  EXPECT_THAT(verdict_on(locks.diagnose(), "schema"), ::testing::StartsWith("failure: syncguard_fence_counters"));
  EXPECT_THAT(advice(), ::testing::StartsWith("restore a backup"));
}

TEST_F(SqliteDiagnosis, FindsAPathThatCannotBe) {
  std::filesystem::create_directories(path.parent_path());
  path = path.parent_path() / std::string(300, 'n');
  EXPECT_THAT(verdict_on(client().diagnose(), "file"), ::testing::StartsWith("failure: cannot be reached"));
}

TEST_F(SqliteDiagnosis, FindsAMissingIndexADamagedAndAForeignFile) {
  auto locks = client();
  (void)locks.setup();
  SqliteOutsider{path}("DROP INDEX idx_syncguard_locks_lock_id");
  EXPECT_THAT(verdict_on(locks.diagnose(), "schema"), ::testing::StartsWith("failure: idx_syncguard_locks_lock_id"));
  locks.close();

  std::filesystem::remove_all(path.parent_path());
  std::filesystem::create_directories(path.parent_path());
  SqliteOutsider{path}("CREATE TABLE theirs (x)");
  EXPECT_THAT(verdict_on(client().diagnose(), "configuration"), ::testing::StartsWith("failure"));

  std::filesystem::remove_all(path.parent_path());
  {
    auto filled = client();
    for (int i = 0; i < 200; ++i) (void)filled.acquire("key" + std::to_string(i)).detach();
  }
  SqliteOutsider{path}("PRAGMA wal_checkpoint(TRUNCATE)");
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(3 * 4096);
    for (int i = 0; i < 4096; ++i) file.put('\x5a');
  }
  const auto findings = client().diagnose();
  EXPECT_TRUE(std::ranges::any_of(findings, [](const Finding& finding) {
    return finding.verdict == Finding::Verdict::failure;
  })) << verdict_on(findings, "integrity");
}

}  // namespace
}  // namespace syncguard::testing
