// `syncguard run` when its lock is lost, and when the server is unreachable.

#include "e2e/run_fixture.hpp"
#if SYNCGUARD_HAS_REDIS
#include "servers/loopback.hpp"
#include "servers/redis_server.hpp"
#endif

namespace syncguard::testing {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

TEST_F(Run, KillsImmediatelyIfBackendReportsLockGone) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "15s", "--json"}, "trap '' TERM; " + beat));
  ASSERT_TRUE(beats());
  auto locks = open(url);
  EXPECT_TRUE(locks.release(locks.admin().get_by_key_raw("k").value().lock_id));
  const auto start = steady_clock::now();
  const auto outcome = process.finish();
  EXPECT_LT(steady_clock::now() - start, 12s) << "at the next renewal, after at most five seconds, not at the deadline";
  EXPECT_EQ(outcome.exit_code, 79);
  EXPECT_EQ(nlohmann::json::parse(outcome.err), (nlohmann::json{{"ok", false}, {"reason", "lost"}, {"exitCode", 79}}));
  expect_no_heartbeat_after_takeover();
}

TEST_F(Run, ReportsLockThatWasGoneWhenCommandEnded) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "1m", "--lost-exit-code", "33"},
                                    "touch begun; until test -e go; do sleep 0.01; done"));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.path() / "begun"); }));
  auto locks = open(url);
  EXPECT_TRUE(locks.release(locks.admin().get_by_key_raw("k").value().lock_id));
  std::ofstream(folder.path() / "go") << "!";
  const auto outcome = process.finish();
  EXPECT_EQ(outcome.exit_code, 33);
  EXPECT_THAT(outcome.err, HasSubstr("another holder may have run at the same time"));
}

#if SYNCGUARD_HAS_REDIS
TEST_F(Run, EndsCommandBeforeLockExpiresIfServerStops) {
  RedisServer server;
  url = server.plain_url();
  // One command ends on SIGTERM, the other ignores it.
  CommandProcess pausing(url,
                         shell({"--key", "p", "--ttl", "9s", "--kill-after", "3s"},
                               "trap 'echo bye > farewell; exit 0' TERM; echo > begun; while :; do sleep 0.01; done"));
  CommandProcess ignores_sigterm(
      url, shell({"--key", "k", "--ttl", "9s", "--kill-after", "3s"}, "trap 'date +%s%N >> signaled' TERM; " + beat));
  ASSERT_TRUE(appears("begun"));
  ASSERT_TRUE(beats());
  const auto expiry = [&] { return open(url).lookup(Key("k")).value().expires_at; };
  const auto first = expiry();
  ASSERT_TRUE(eventually([&] { return expiry() > first; })) << "the lock must be renewed at least once";
  server.pause();
  EXPECT_EQ(pausing.finish().exit_code, 79);
  const auto outcome = ignores_sigterm.finish();
  const auto ended = std::chrono::system_clock::now().time_since_epoch();
  EXPECT_EQ(outcome.exit_code, 79);
  EXPECT_THAT(outcome.err, HasSubstr("the lock was lost"));
  EXPECT_EQ(file("farewell"), "bye\n");
  ASSERT_FALSE(file("signaled").empty()) << "SIGTERM must come before SIGKILL";
  const auto signaled = std::chrono::nanoseconds(std::stoll(file("signaled")));
  EXPECT_GT(ended - signaled, 0s);
  EXPECT_LT(ended - signaled, 9s);
  server.resume();
  expect_no_heartbeat_after_takeover();
}

TEST_F(Run, DoesNotWaitForeverForUnreachableServer) {
  const LoopbackSocket unreachable;
  url = "redis://127.0.0.1:" + std::to_string(unreachable.port());
  const auto outcome = run({"run", "--", "true"});
  EXPECT_EQ(outcome.exit_code, 69);
  EXPECT_THAT(outcome.err, HasSubstr("ServiceUnavailable"));
  EXPECT_EQ(run({"acquire", "k"}).exit_code, 69);
  const auto start = steady_clock::now();
  const auto waited = run({"acquire", "k", "--wait", "300ms"});
  EXPECT_EQ(waited.exit_code, 69) << "unreachable, not locked: " << waited.err;
  EXPECT_GE(steady_clock::now() - start, 300ms);
}

TEST_F(Run, RetriesWithinWaitWhileServerIsUnreachable) {
  RedisServer server;
  url = server.plain_url() + "?operation_timeout=200ms";
  server.pause();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"-v", "acquire", "a", "--wait", "1h"},
                                                  {"-v", "run", "--key", "b", "--wait", "1h", "true"}}) {
    CommandProcess process(url, command);
    EXPECT_TRUE(eventually([&] { return process.err().find("retrying") != std::string::npos; })) << process.err();
    server.resume();
    EXPECT_EQ(process.finish().exit_code, 0) << command[1];
    server.pause();
  }
  server.resume();
}

TEST_F(Run, RetriesReleaseUntilLockExpires) {
  RedisServer server;
  url = server.plain_url() + "?operation_timeout=200ms";
  const std::string wait_for_go = "echo begun > begun; until test -e go; do sleep 0.01; done; exit 5";
  CommandProcess process(url, shell({"--key", "k", "--ttl", "10m"}, wait_for_go));
  ASSERT_TRUE(appears("begun"));
  server.pause();
  std::ofstream(folder.path() / "go") << "!";
  EXPECT_TRUE(eventually([&] { return process.err().find("retrying") != std::string::npos; })) << process.err();
  EXPECT_FALSE(process.has_ended());
  server.resume();
  EXPECT_EQ(process.finish().exit_code, 5);
  EXPECT_FALSE(open(server.plain_url()).is_locked("k"));

  // A signal ends the retries.
  CommandProcess ended(
      url, shell({"--key", "k", "--ttl", "10m"}, "echo begun > again; until test -e end; do sleep 0.01; done"));
  ASSERT_TRUE(appears("again"));
  server.pause();
  std::ofstream(folder.path() / "end") << "!";
  EXPECT_TRUE(eventually([&] { return ended.err().find("retrying") != std::string::npos; })) << ended.err();
  ended.send(SIGTERM);
  ended.finish();
  EXPECT_EQ(ended.killed_by(), SIGTERM);
  server.resume();
}

TEST_F(Run, SecondSignalAlwaysEndsIt) {
  RedisServer server;
  url = server.plain_url() + "?operation_timeout=10m";
  CommandProcess process(
      url, shell({"--key", "k", "--ttl", "1h"}, "echo $$ > command; until test -e go; do sleep 0.01; done"));
  ASSERT_TRUE(appears("command"));
  const auto command = std::filesystem::path("/proc") / std::to_string(std::stoi(file("command")));
  server.pause();
  std::ofstream(folder.path() / "go") << "!";
  // After the command has ended, the release waits for the paused server.
  ASSERT_TRUE(eventually([&] { return !std::filesystem::exists(command); }));
  EXPECT_TRUE(eventually([&] {
    process.send(SIGTERM);
    return process.has_ended();
  }));
  EXPECT_EQ(process.killed_by(), SIGTERM);
  server.resume();
}
#endif

}  // namespace
}  // namespace syncguard::testing
