// Processes that the command of `syncguard run` leaves behind.

#include "e2e/run_fixture.hpp"

namespace syncguard::testing {
namespace {

using std::chrono::steady_clock;

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
  EXPECT_TRUE(locks.release(locks.admin().get_by_key_raw("k").value().lock_id));
  EXPECT_EQ(process.finish().exit_code, 79);
  expect_no_heartbeat_after_takeover();
}

}  // namespace
}  // namespace syncguard::testing
