// Processes that the command of `syncguard run` leaves behind, and processes of `syncguard run` that are stopped or
// killed.

#include "e2e/run_fixture.hpp"

namespace syncguard::testing {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

// ---------------------------------------------------------------------------------------------------------------------
// Processes that the command leaves behind

TEST_F(Run, KeepsLockUntilProcessGroupIsEmpty) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "6s"},
                                    "echo $$ > leader; "
                                    "(until test -e go; do sleep 0.01; done; date +%s%N >> beats) & exit 5"));
  ASSERT_TRUE(appears("leader"));
  const auto leader = std::filesystem::path("/proc") / std::to_string(std::stoi(file("leader")));
  ASSERT_TRUE(eventually([&] { return !std::filesystem::exists(leader); }));
  auto locks = open(url);
  const auto first = locks.lookup(Key("k")).value().expires_at;
  EXPECT_TRUE(eventually([&] { return locks.lookup(Key("k")).value().expires_at > first; }))
      << "the lock must still be renewed";
  EXPECT_FALSE(process.has_ended()) << "a grandchild still runs";
  std::ofstream(folder.path() / "go") << "!";
  EXPECT_EQ(process.finish().exit_code, 5);
  EXPECT_FALSE(file("beats").empty());
  EXPECT_FALSE(is_locked("k"));
}

// A daemon has left the group and never reaps its child, which stays in the group as a zombie.
TEST_F(Run, DoesNotWaitForZombieInProcessGroup) {
  CommandProcess process(url, {"run", "--key", "k", "--", "python3", "-c", R"(
import os, time
ready, is_ready = os.pipe()
if os.fork() == 0:
    if os.fork() == 0: os._exit(0)
    os.setsid()
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    os.write(is_ready, b'!')
    time.sleep(60)
    os._exit(0)
os.read(ready, 1)
)"});
  const auto start = steady_clock::now();
  EXPECT_EQ(process.finish().exit_code, 0);
  EXPECT_LT(steady_clock::now() - start, 40s) << "the daemon lives for a minute";
  EXPECT_FALSE(is_locked("k"));
}

// Such a process is listed as a zombie, although its other threads run.
TEST_F(Run, WaitsForProcessWhoseMainThreadHasEnded) {
  CommandProcess process(url, {"run", "--key", "k", "--ttl", "6s", "--", "python3", "-c", R"(
import ctypes, os, sys, threading, time
os.chdir(sys.argv[1])
if os.fork() == 0:
    def work():
        while open('/proc/%d/stat' % os.getpid()).read().split()[2] != 'Z': time.sleep(0.01)
        open('begun', 'w').write('!')
        while not os.path.exists('go'): time.sleep(0.01)
    threading.Thread(target=work).start()
    ctypes.CDLL(None).pthread_exit(None)
)",
                               folder.path().string()});
  ASSERT_TRUE(appears("begun"));
  auto locks = open(url);
  const auto first = locks.lookup(Key("k")).value().expires_at;
  EXPECT_TRUE(eventually([&] { return locks.lookup(Key("k")).value().expires_at > first; }))
      << "the lock must still be renewed";
  EXPECT_FALSE(process.has_ended());
  std::ofstream(folder.path() / "go") << "!";
  EXPECT_EQ(process.finish().exit_code, 0);
}

TEST_F(Run, KillsGrandchildrenIfLockIsLost) {
  CommandProcess process(
      url, shell({"--key", "k", "--ttl", "6s"}, "(trap '' TERM; " + beat + ") & (" + beat + ") & exit 0"));
  ASSERT_TRUE(beats());
  auto locks = open(url);
  EXPECT_TRUE(locks.release(locks.get_by_key_raw("k").value().lock_id));
  EXPECT_EQ(process.finish().exit_code, 79);
  expect_no_heartbeat_after_takeover();
}

// ---------------------------------------------------------------------------------------------------------------------
// Stopped and killed syncguard processes

TEST_F(Run, StoppedSyncguardDoesNotLetCommandOutliveLock) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "6s", "--kill-after", "3s"},
                                    "trap 'echo signaled >> signaled' TERM; " + beat));
  ASSERT_TRUE(beats());
  process.stop();
  expect_no_heartbeat_after_takeover();
  EXPECT_FALSE(file("signaled").empty());
  process.send(SIGCONT);
  EXPECT_EQ(process.finish().exit_code, 79);
}

TEST_F(Run, KillingSyncguardKillsCommand) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "6s", "--kill-after", "3s"},
                                    "trap 'echo signaled >> signaled' TERM; (trap '' TERM; " + beat + ") & " + beat));
  ASSERT_TRUE(beats());
  process.send(SIGKILL);
  EXPECT_EQ(process.finish().exit_code, 128 + SIGKILL);
  expect_no_heartbeat_after_takeover();
  EXPECT_FALSE(file("signaled").empty()) << "SIGTERM must come before SIGKILL";
}

TEST_F(Run, KillingJobKillsCommand) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "6s", "--kill-after", "300ms"}, "trap '' TERM; " + beat));
  ASSERT_TRUE(beats());
  kill(-process.pid(), SIGKILL);  // like `kill -9 %1`
  EXPECT_EQ(process.finish().exit_code, 128 + SIGKILL);
  expect_no_heartbeat_after_takeover();
}

TEST_F(Run, KillingGuardianKillsCommand) {
  CommandProcess process(url, shell({"--key", "k"}, "echo $PPID > guardian; (" + beat + ") & " + beat));
  ASSERT_TRUE(beats());
  ASSERT_TRUE(appears("guardian"));
  kill(std::stoi(file("guardian")), SIGKILL);
  const auto outcome = process.finish();
  EXPECT_EQ(outcome.exit_code, 70);
  EXPECT_THAT(outcome.err, HasSubstr("guardian"));
  EXPECT_FALSE(is_locked("k"));
  expect_no_heartbeat_after_takeover();
}

TEST_F(Run, SyncguardKilledWhileWaitingLeavesNoGuardian) {
  auto locks = open(url);
  const auto held = locks.acquire("k");
  CommandProcess waiting(url, {"run", "--key", "k", "--", "true"});
  const auto children =
      "/proc/" + std::to_string(waiting.pid()) + "/task/" + std::to_string(waiting.pid()) + "/children";
  ASSERT_TRUE(eventually([&] { return !text_of_file(children).empty(); }));
  const pid_t guardian = std::stoi(text_of_file(children));
  waiting.send(SIGKILL);
  EXPECT_EQ(waiting.finish().exit_code, 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return text_of_file("/proc/" + std::to_string(guardian) + "/cmdline").empty(); }));
}

}  // namespace
}  // namespace syncguard::testing
