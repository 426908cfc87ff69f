// Signals to `syncguard run` and to its command.

#include "e2e/run_fixture.hpp"

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(Run, ForwardsSignals) {
  for (const auto& [name, number] : {std::pair("INT", SIGINT),
                                     {"TERM", SIGTERM},
                                     {"HUP", SIGHUP},
                                     {"QUIT", SIGQUIT},
                                     {"USR1", SIGUSR1},
                                     {"USR2", SIGUSR2},
                                     {"WINCH", SIGWINCH}}) {
    CommandProcess process(url, {"run", "--key", "bash", "--", "bash", "-c",
                                 std::string("trap 'exit 77' ") + name + "; echo ready; while :; do sleep 0.01; done"});
    ASSERT_TRUE(eventually([&] { return process.out() == "ready\n"; }));
    process.send(number);
    EXPECT_EQ(process.finish().exit_code, 77) << name;
  }
  CommandProcess untrapped(url, {"run", "--key", "k", "--", "sh", "-c", "echo ready; exec sleep 60"});
  ASSERT_TRUE(eventually([&] { return untrapped.out() == "ready\n"; }));
  untrapped.send(SIGTERM);
  EXPECT_EQ(untrapped.finish().exit_code, 128 + SIGTERM);
  EXPECT_FALSE(is_locked("k"));
}

// A service manager recognizes a stopped job by the signal, not by exit code 143.
TEST_F(Run, DiesOfSignalThatEndedCommand) {
  auto locks = open(url);
  for (const int signal : {SIGTERM, SIGHUP, SIGINT}) {
    CommandProcess running(url, {"-v", "run", "--key", "k", "--", "sh", "-c", "echo ready; exec sleep 60"});
    ASSERT_TRUE(eventually([&] { return running.out() == "ready\n"; }));
    running.send(signal);
    EXPECT_THAT(running.finish().err, HasSubstr("release: ok")) << "the lock must be released first";
    EXPECT_EQ(running.killed_by(), signal) << "while the command runs";
    const auto held = locks.acquire("k");
    CommandProcess waiting(url, {"run", "--key", "k", "-v", "--", "true"});
    ASSERT_TRUE(eventually([&] { return waiting.err().find("waiting") != std::string::npos; }));
    waiting.send(signal);
    waiting.finish();
    EXPECT_EQ(waiting.killed_by(), signal) << "while it waits";
  }
}

// A process with this name sends SIGTERM to other processes, one after the other.
class Sender {
 public:
  Sender(const char* name, const std::vector<pid_t>& processes) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_NAME, name);
    for (const pid_t process : processes) kill(process, SIGTERM);
    // Stays alive, so that syncguard can read the name of the sender.
    for (;;) pause();
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  ~Sender() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  const pid_t pid_;
};

// systemd with KillMode=control-group signals every process of the service, in any order. The test sends from a process
// named systemd.
TEST_F(Run, SignalToWholeServiceReachesCommandOnce) {
  const std::string count =
      "trap 'echo signaled >> signaled' TERM; echo $$ > command; echo $PPID > guardian; until test -e go; do sleep "
      "0.01; done";
  CommandProcess process(url, shell({"--key", "k"}, count));
  ASSERT_TRUE(appears("guardian"));
  const pid_t guardian = std::stoi(file("guardian"));
  const pid_t command = std::stoi(file("command"));
  const auto no_signal_yet = [&] { std::filesystem::remove(folder.path() / "signaled"); };
  const auto arrives_once = [&] {
    // Long enough for a forwarded signal to arrive.
    std::this_thread::sleep_for(500ms);
    return file("signaled") == "signaled\n";
  };

  no_signal_yet();
  {
    // Equal signals do not queue: the command must have handled its own before syncguard could forward another.
    process.stop();
    const Sender manager("systemd", {command, guardian, process.pid()});
    ASSERT_TRUE(appears("signaled"));
    process.send(SIGCONT);
    EXPECT_TRUE(arrives_once()) << file("signaled");
  }
  // If syncguard gets its signal first, the others must get theirs soon: a busy machine may delay the sender.
  EXPECT_TRUE(succeeds_once([&] {
    no_signal_yet();
    const Sender manager("systemd", {process.pid(), guardian, command});
    EXPECT_TRUE(appears("signaled"));
    return arrives_once();
  })) << file("signaled");

  no_signal_yet();
  const Sender only_to_syncguard("systemd", {process.pid()});
  EXPECT_TRUE(appears("signaled")) << "a signal sent only to syncguard, as with KillMode=process, must be forwarded";

  no_signal_yet();
  // By process name, which matches syncguard but not the command.
  const Sender by_name("pkill", {process.pid(), guardian});
  EXPECT_TRUE(appears("signaled")) << "a signal that the command did not get must be forwarded";
  std::ofstream(folder.path() / "go") << "!";
  EXPECT_EQ(process.finish().exit_code, 0);
}

TEST_F(Run, CanBeInterruptedWhileWaiting) {
  auto locks = open(url);
  const auto held = locks.acquire("k");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    CommandProcess waiting(url, {"run", "--key", "k", "-v", "--", "true"});
    ASSERT_TRUE(eventually([&] { return waits_for_signals(waiting.pid()); }));
    waiting.send(signal);
    EXPECT_EQ(waiting.finish().exit_code, 128 + signal);
  }
}

TEST_F(Run, KeepsIgnoredSignalsIgnored) {
  CommandProcess process(url,
                         {"run", "--key", "sh", "--", "sh", "-c",
                          "echo ready; until test -e " + (folder.path() / "go").string() + "; do sleep 0.01; done"});
  ASSERT_TRUE(eventually([&] { return process.out() == "ready\n"; }));
  // Like nohup around syncguard.
  const std::string script = "trap '' HUP; " SYNCGUARD_COMMAND " --url '" + url +
                             "' run --key n -- sh -c 'kill -HUP $PPID; kill -HUP $$; echo alive'";
  FILE* output = popen(script.c_str(), "r");
  char buffer[64] = {};
  EXPECT_NE(fgets(buffer, sizeof buffer, output), nullptr);
  EXPECT_STREQ(buffer, "alive\n");
  EXPECT_EQ(pclose(output), 0);
  std::ofstream(folder.path() / "go") << "!";
  EXPECT_EQ(process.finish().exit_code, 0);
}

}  // namespace
}  // namespace syncguard::testing
