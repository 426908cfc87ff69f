// Hundreds of commands use one file at the same time.

#include "e2e/command_process.hpp"
#include "support/sqlite_client.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace syncguard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr int commands = 200;

pid_t start(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (auto& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t child = -1;
  EXPECT_EQ(posix_spawn(&child, pointers[0], nullptr, nullptr, pointers.data(), environ), 0);
  return child;
}

// Starts all commands at the same time, without --wait. Each waits as long as it needs, runs its command and leaves no
// lock or queue entry.
void expect_all_to_run(const std::function<std::string(int)>& key) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "locks.db";
  const auto ran = folder.path() / "ran";
  std::filesystem::create_directory(ran);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  for (int i = 0; i < commands; ++i) {
    const auto file = ran / std::to_string(i);
    children.push_back(
        start({SYNCGUARD_COMMAND, "--url", "sqlite:" + path.string(), "run", "--key", key(i), "--", "touch", file}));
  }
  std::map<int, int> count_of_status;
  for (const pid_t child : children) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    ++count_of_status[status];
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%d commands took %.1f s\n", commands, took.count());
  EXPECT_THAT(count_of_status, ElementsAre(Pair(0, commands)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(ran), {}), commands);
  EXPECT_EQ(SqliteClient{path}("SELECT count(*) FROM syncguard_locks"), "0");
  EXPECT_EQ(SqliteClient{path}("SELECT count(*) FROM syncguard_locks_waiters"), "0");
}

TEST(SqliteStorm, RunWaitsForABusyDatabase) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "locks.db";
  const auto url = "sqlite:" + path.string() + "?operation_timeout=50ms";
  EXPECT_EQ(CommandProcess("sqlite:" + path.string(), {"run", "true"}).finish().exit_code, 0);
  SqliteClient writer(path);
  writer("BEGIN IMMEDIATE");
  CommandProcess waiting(url, {"-v", "run", "true"});
  EXPECT_TRUE(eventually([&] { return waiting.err().find("retrying") != std::string::npos; })) << waiting.err();
  const auto refused = CommandProcess(url, {"run", "--no-wait", "true"}).finish();
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_THAT(refused.err, HasSubstr("busy"));
  writer("COMMIT");
  EXPECT_EQ(waiting.finish().exit_code, 0);
}

TEST(SqliteStorm, CommandsWithDistinctKeysAllSucceed) {
  expect_all_to_run([](int i) { return "key" + std::to_string(i); });
}

TEST(SqliteStorm, CommandsWithSameKeyAllSucceed) {
  expect_all_to_run([](int) { return std::string("key"); });
}

}  // namespace
}  // namespace syncguard::testing
