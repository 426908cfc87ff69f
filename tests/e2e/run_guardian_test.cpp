// Stopped and killed processes of `syncguard run`: syncguard itself, its guardian, or both. The manual page has a table
// of these cases.

#include "e2e/run_fixture.hpp"

#include <poll.h>
#include <sys/stat.h>

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;

struct RunGuardian : Run {
  // The processes of the command have the FIFO open for writing, so that this descriptor reports the end of the last.
  const int processes = [this] {
    const auto path = folder.path() / "processes";
    mkfifo(path.c_str(), 0600);
    return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  }();
  ~RunGuardian() override { close(processes); }

  // Several processes, one of which ignores SIGTERM. They end when the test's folder is removed.
  const std::string several =
      "exec 3> processes; work() { while test -p processes; do sleep 0.01; done; }; "
      "(trap '' TERM; work) & work & echo $PPID > guardian; work";

  [[nodiscard]] bool all_end() const {
    pollfd end{.fd = processes, .events = 0, .revents = 0};
    return poll(&end, 1, 60'000) == 1;
  }
  // The guardian as the command's script has written it.
  [[nodiscard]] pid_t guardian() const {
    EXPECT_TRUE(appears("guardian"));
    return std::stoi(file("guardian"));
  }
  void forget_guardian() const { std::filesystem::remove(folder.path() / "guardian"); }
};

// The guardian, also of a syncguard that has not started its command.
pid_t guardian_of(const CommandProcess& syncguard) {
  const auto process = std::to_string(syncguard.pid());
  const auto children = "/proc/" + process + "/task/" + process + "/children";
  EXPECT_TRUE(eventually([&] { return !text_of_file(children).empty(); }));
  return std::stoi(text_of_file(children));
}

bool is_stopped(pid_t process) {
  return text_of_file("/proc/" + std::to_string(process) + "/stat").find(") T ") != std::string::npos;
}

// Returns when the process has stopped. syncguard must be stopped, or not have started its command, because it would
// resume its guardian.
void stop(pid_t process) {
  kill(process, SIGSTOP);
  EXPECT_TRUE(eventually([&] { return is_stopped(process); }));
}

TEST_F(RunGuardian, StoppedSyncguardDoesNotLetCommandOutliveLock) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "6s", "--kill-after", "3s"},
                                    "trap 'echo signaled >> signaled' TERM; " + beat));
  ASSERT_TRUE(beats());
  process.stop();
  expect_no_heartbeat_after_takeover();
  EXPECT_FALSE(file("signaled").empty());
  process.send(SIGCONT);
  EXPECT_EQ(process.finish().exit_code, 79);
}

TEST_F(RunGuardian, KillingSyncguardKillsCommand) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "6s", "--kill-after", "3s"},
                                    "trap 'echo signaled >> signaled' TERM; (trap '' TERM; " + beat + ") & " + beat));
  ASSERT_TRUE(beats());
  process.send(SIGKILL);
  EXPECT_EQ(process.finish().exit_code, 128 + SIGKILL);
  expect_no_heartbeat_after_takeover();
  EXPECT_FALSE(file("signaled").empty()) << "SIGTERM must come before SIGKILL";
}

TEST_F(RunGuardian, KillingJobKillsCommand) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "6s", "--kill-after", "300ms"}, "trap '' TERM; " + beat));
  ASSERT_TRUE(beats());
  kill(-process.pid(), SIGKILL);  // like `kill -9 %1`
  EXPECT_EQ(process.finish().exit_code, 128 + SIGKILL);
  expect_no_heartbeat_after_takeover();
}

TEST_F(RunGuardian, KillingGuardianKillsCommand) {
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

TEST_F(RunGuardian, KillingGuardianKillsCommandThatLeftItsGroup) {
  CommandProcess process(url, {"run", "--key", "k", "--ttl", "10m", "--", "python3", "-c", R"(
import os, sys, time
os.chdir(sys.argv[1])
processes = os.open('processes', os.O_WRONLY)
ready, is_ready = os.pipe()
group = os.fork()
if group == 0:
    os.close(processes)
    os.setpgid(0, 0)
    os.write(is_ready, b'!')
    time.sleep(600)
os.read(ready, 1)
os.setpgid(0, group)
os.kill(group, 9)
open('guardian', 'w').write(str(os.getppid()))
while os.path.exists('processes'): time.sleep(0.01)
)",
                               folder.path().string()});
  const pid_t killed = guardian();
  process.stop();
  kill(killed, SIGKILL);
  ASSERT_TRUE(all_end());
}

// The zombie is the child of a daemon that left the group and never reaps it.
TEST_F(RunGuardian, KillingGuardianDoesNotWaitForZombieInProcessGroup) {
  CommandProcess process(url, {"run", "--key", "k", "--ttl", "10m", "--", "python3", "-c", R"(
import os, sys, time
os.chdir(sys.argv[1])
guardian = os.getppid()
if os.fork() == 0:
    if os.fork() == 0: os._exit(0)
    os.setsid()
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    open('guardian', 'w').write(str(guardian))
while os.path.exists('processes'): time.sleep(0.01)
)",
                               folder.path().string()});
  kill(guardian(), SIGKILL);
  ASSERT_TRUE(eventually([&] { return process.has_ended(); }));
  EXPECT_EQ(process.finish().exit_code, 70);
  EXPECT_FALSE(is_locked("k"));
}

TEST_F(RunGuardian, KillingGuardianOfStoppedSyncguardKillsProcessGroup) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "10m"}, several));
  const pid_t killed = guardian();
  process.stop();
  kill(killed, SIGKILL);
  ASSERT_TRUE(all_end());
  process.send(SIGCONT);
  EXPECT_EQ(process.finish().exit_code, 70);
  EXPECT_FALSE(is_locked("k"));
}

// In both orders, and without time for either to notice the end of the other.
TEST_F(RunGuardian, KillingSyncguardAndGuardianKillsProcessGroup) {
  for (const std::string first : {"syncguard", "guardian"}) {
    forget_guardian();
    CommandProcess process(url, shell({"--key", first, "--ttl", "10m"}, several));
    const pid_t other = guardian();
    process.stop();
    stop(other);
    kill(first == "guardian" ? other : process.pid(), SIGKILL);
    kill(first == "guardian" ? process.pid() : other, SIGKILL);
    ASSERT_TRUE(all_end()) << "first: " << first;
    EXPECT_EQ(process.finish().exit_code, 128 + SIGKILL);
    EXPECT_TRUE(is_locked(first)) << "until it expires";
  }
}

// Tools such as LVM's complain about descriptors that they do not know.
TEST_F(RunGuardian, CommandInheritsNoDescriptorsOfSyncguard) {
  const auto outside = CommandProcess(url, {"/proc/self/fd"}, "/bin/ls").finish();
  EXPECT_EQ(run({"run", "--", "ls", "/proc/self/fd"}).out, outside.out);
}

// As the manual recommends for commands whose processes leave the group.
TEST_F(RunGuardian, KillingSyncguardAndGuardianKillsDaemonInPidNamespace) {
  ASSERT_EQ(std::system("unshare --pid --kill-child true"), 0) << "this test needs a PID namespace: run it as root";
  const std::string leave_group = "exec 3> processes; setsid sh -c 'while test -p processes; do sleep 0.01; done' & ";
  CommandProcess process(url, {"run", "--key", "k", "--ttl", "10m", "--", "unshare", "--pid", "--kill-child", "sh",
                               "-c", script(leave_group + "echo > ready; wait")});
  ASSERT_TRUE(appears("ready"));
  const pid_t other = guardian_of(process);
  process.stop();
  kill(other, SIGKILL);
  process.send(SIGKILL);
  ASSERT_TRUE(all_end());
}

// The one case that a stop of both leaves open: the command outlives its lock, but not the next moment at which either
// runs.
TEST_F(RunGuardian, ResumingEitherProcessEndsCommandThatOutlivedItsLock) {
  for (const std::string first : {"syncguard", "guardian"}) {
    forget_guardian();
    CommandProcess process(url, shell({"--key", first, "--ttl", "3s"}, several));
    const pid_t other = guardian();
    process.stop();
    stop(other);
    ASSERT_TRUE(eventually([&] { return !is_locked(first); }));
    kill(first == "guardian" ? other : process.pid(), SIGCONT);
    ASSERT_TRUE(all_end()) << first;
    process.send(SIGCONT);
    EXPECT_EQ(process.finish().exit_code, 79);
  }
}

// The kernel limits descriptors in messages, which the guardian uses, to the user's RLIMIT_NOFILE, except for root.
TEST_F(RunGuardian, WorksIfManyDescriptorsOfThisUserAreInMessages) {
  std::vector<std::string> words = {"python3", "-c", R"(
import ctypes, os, resource, socket, sys
ends = socket.socketpair()
for end in ends: end.set_inheritable(True)
socket.send_fds(ends[0], [b'!'], [0] * 100)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
PR_CAPBSET_DROP, CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 24, 21, 24
for capability in (CAP_SYS_ADMIN, CAP_SYS_RESOURCE): ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability)
os.execv(sys.argv[1], sys.argv[1:])
)",
                                    SYNCGUARD_COMMAND};
  for (const auto& word : shell({"--key", "k"}, "ulimit -n")) words.push_back(word);
  const auto outcome = CommandProcess(url, words, "/usr/bin/env").finish();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "64\n") << "the command must have its own limit";
}

TEST_F(RunGuardian, StoppedGuardianIsResumed) {
  // The second time, SIGCHLD is ignored from the start.
  for (const std::string action : {"SIG_DFL", "SIG_IGN"}) {
    forget_guardian();
    std::vector<std::string> words = {"python3", "-c",
                                      "import os, signal, sys; signal.signal(signal.SIGCHLD, signal." + action +
                                          "); os.execv(sys.argv[1], sys.argv[1:])",
                                      SYNCGUARD_COMMAND};
    for (const auto& word : shell({"--key", "k", "--ttl", "6s"}, several)) words.push_back(word);
    CommandProcess process(url, words, "/usr/bin/env");
    kill(guardian(), SIGSTOP);
    auto locks = open(url);
    EXPECT_TRUE(locks.release(locks.admin().get_by_key_raw("k").value().lock_id));
    ASSERT_TRUE(all_end()) << "the guardian must kill the command because the lock is gone";
    EXPECT_EQ(process.finish().exit_code, 79) << action;
  }
}

TEST_F(RunGuardian, GuardianStoppedWhileSyncguardWaitsIsResumed) {
  auto locks = open(url);
  auto held = std::make_optional(locks.acquire("k"));
  CommandProcess waiting(url, {"run", "--key", "k", "--", "true"});
  CommandProcess interrupted(url, {"run", "--key", "k", "--", "true"});
  stop(guardian_of(waiting));
  stop(guardian_of(interrupted));
  interrupted.send(SIGTERM);
  ASSERT_TRUE(eventually([&] { return interrupted.has_ended(); }));
  held.reset();
  ASSERT_TRUE(eventually([&] { return waiting.has_ended(); }));
  EXPECT_EQ(waiting.finish().exit_code, 0);
}

TEST_F(RunGuardian, StoppedGuardianNoticesThatSyncguardWasKilled) {
  // The guardian's next parent is in the same session. Otherwise the kernel resumes the guardian, because its group has
  // become an orphan.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  CommandProcess process(url, shell({"--key", "k", "--ttl", "10m", "--kill-after", "300ms"}, several));
  const pid_t stopped = guardian();
  process.stop();
  stop(stopped);
  process.send(SIGKILL);
  EXPECT_TRUE(all_end());
  kill(stopped, SIGKILL);
  waitpid(stopped, nullptr, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_F(RunGuardian, SyncguardKilledWhileWaitingLeavesNoGuardian) {
  auto locks = open(url);
  const auto held = locks.acquire("k");
  CommandProcess waiting(url, {"run", "--key", "k", "--", "true"});
  const pid_t guardian = guardian_of(waiting);
  waiting.send(SIGKILL);
  EXPECT_EQ(waiting.finish().exit_code, 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return text_of_file("/proc/" + std::to_string(guardian) + "/cmdline").empty(); }));
}

}  // namespace
}  // namespace syncguard::testing
