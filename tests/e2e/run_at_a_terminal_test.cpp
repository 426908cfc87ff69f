// `syncguard run` by somebody who types: Ctrl-C, Ctrl-Z, jobs in the background, and what is shown while it waits.

#include "e2e/run_fixture.hpp"
#include "e2e/terminal.hpp"

#include <optional>

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct RunAtATerminal : Run {
  Terminal terminal{url};

  RunAtATerminal() { terminal.type("cd " + folder.path().string() + "\n"); }

  // And asks what came of it. Not on the line before: of that, a shell drops what follows a command that SIGINT killed.
  void interrupt() const {
    terminal.type(Terminal::ctrl_c);
    terminal.type("echo code $?\n");
  }
};

TEST_F(RunAtATerminal, CtrlCEndsTheCommand) {
  terminal.type("$syncguard run --key k -- sh -c 'echo begun; exec sleep 60'\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  interrupt();
  EXPECT_THAT(terminal.wait_for("code 130"), Not(IsEmpty())) << terminal.everything();
  EXPECT_FALSE(is_locked("k"));
}

TEST_F(RunAtATerminal, CtrlCThatTheCommandHandlesIsItsOwnAffair) {
  terminal.type(
      "$syncguard run --key k -- bash -c 'trap \"exit 7\" INT; echo begun; while :; do sleep 0.01; done'; "
      "echo code $?\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  terminal.type(Terminal::ctrl_c);
  EXPECT_THAT(terminal.wait_for("code 7"), Not(IsEmpty())) << terminal.everything();
}

TEST_F(RunAtATerminal, CtrlCAlsoEndsTheScriptAroundIt) {
  // With the terminal, and without it.
  for (const std::string where : {"", " > out"}) {
    terminal.type("bash -c '$syncguard run --key k -- sh -c \"echo begun > /dev/tty; exec sleep 60\"" + where +
                  "; echo went on'\n");
    ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
    interrupt();
    EXPECT_THAT(terminal.wait_for("code 130"), Not(HasSubstr("went on"))) << where;
    EXPECT_FALSE(is_locked("k"));
  }
}

TEST_F(RunAtATerminal, CtrlCAlsoEndsTheScriptAroundOneThatWaits) {
  auto locks = open(url);
  const auto held = locks.acquire("k");
  for (const std::string command : {"run --key k -- true", "acquire k --wait 1m"}) {
    terminal.type("bash -c '$syncguard " + command + "; echo went on'\n");
    ASSERT_THAT(terminal.wait_for("waiting for"), Not(IsEmpty()));
    interrupt();
    EXPECT_THAT(terminal.wait_for("code 130"), Not(HasSubstr("went on"))) << command;
  }
}

TEST_F(RunAtATerminal, TheCommandReadsFromTheTerminal) {
  terminal.type("$syncguard run -- sh -c 'echo begun; read line; echo got $line'; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  terminal.type("hello\n");
  EXPECT_THAT(terminal.wait_for("got hello"), Not(IsEmpty())) << terminal.everything();
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty())) << "and the shell has it back";
}

TEST_F(RunAtATerminal, APartOfAPipelineGetsTheTerminalWhenItAsks) {
  terminal.type(
      "$syncguard run -- sh -c 'echo begun > /dev/tty; read line < /dev/tty; echo got $line' | cat; "
      "echo code ${PIPESTATUS[0]}\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  terminal.type("hello\n");
  EXPECT_THAT(terminal.wait_for("got hello"), Not(IsEmpty())) << terminal.everything();
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty()));
}

TEST_F(RunAtATerminal, CtrlZStopsTheJobAndFgLetsItGoOn) {
  terminal.type(
      "$syncguard run --key k --ttl 1m -- bash -c 'echo begun; until test -e go; do sleep 0.01; done; "
      "echo finished'; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  terminal.type(Terminal::ctrl_z);
  ASSERT_THAT(terminal.wait_for("Stopped"), Not(IsEmpty())) << terminal.everything();
  ASSERT_THAT(terminal.wait_for("code 148"), Not(IsEmpty())) << "the shell is back";
  std::ofstream(folder.path() / "go") << "!";
  EXPECT_TRUE(is_locked("k"));
  terminal.type("echo still here; fg; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("still here"), Not(HasSubstr("finished")));
  EXPECT_THAT(terminal.wait_for("finished"), Not(IsEmpty())) << terminal.everything();
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty()));
  EXPECT_FALSE(is_locked("k"));
}

TEST_F(RunAtATerminal, CtrlZAlsoStopsTheScriptAroundIt) {
  terminal.type(
      "bash -c '$syncguard run --key k --ttl 1m -- bash -c \"echo begun; until test -e go; do sleep 0.01; done\"; "
      "echo w\"\"ent on'; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  terminal.type(Terminal::ctrl_z);
  ASSERT_THAT(terminal.wait_for("code 148"), Not(HasSubstr("went on")));
  std::ofstream(folder.path() / "go") << "!";
  terminal.type("fg; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("went on"), Not(IsEmpty()));
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty()));
}

TEST_F(RunAtATerminal, ACommandStoppedFromOutsideStopsTheJob) {
  terminal.type(
      "$syncguard run --key k --ttl 1m -- sh -c 'echo $$ > command; until test -e go; do sleep 0.01; done'; "
      "echo code $?\n");
  ASSERT_TRUE(comes("command"));
  kill(std::stoi(file("command")), SIGSTOP);
  ASSERT_THAT(terminal.wait_for("code 148"), Not(IsEmpty()));
  std::ofstream(folder.path() / "go") << "!";
  terminal.type("fg; echo code $?\n");
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty()));
}

TEST_F(RunAtATerminal, ACommandStoppedFromOutsideKeepsItsLockWhereNoShellWatches) {
  // In the shell's place, as with `ssh -t host syncguard run …`.
  terminal.type(
      "exec $syncguard run --key k --ttl 6s -- "
      "sh -c 'echo $$ > command; until test -e go; do sleep 0.01; done; echo finished'\n");
  ASSERT_TRUE(comes("command"));
  const pid_t command = std::stoi(file("command"));
  kill(command, SIGSTOP);
  auto locks = open(url);
  const auto first = locks.lookup(Key("k")).value().expires_at;
  ASSERT_TRUE(eventually([&] { return locks.lookup(Key("k")).value().expires_at > first + 3s; }))
      << "renewed meanwhile";
  EXPECT_THAT(text_of_file("/proc/" + std::to_string(command) + "/stat"), HasSubstr(") T ")) << "still stopped";
  std::ofstream(folder.path() / "go") << "!";
  kill(command, SIGCONT);
  EXPECT_THAT(terminal.wait_for("finished"), Not(IsEmpty()));
}

TEST_F(RunAtATerminal, ACommandThatNobodyCanGiveTheTerminalDoesNotKeepTheProcessorBusy) {
  // The subshell is gone at once: nobody watches this job.
  terminal.type(
      "($syncguard run --key k -- sh -c 'echo $PPID > guardian; read line < /dev/tty' & echo $! > syncguard)\n");
  ASSERT_TRUE(comes("guardian"));
  ASSERT_TRUE(comes("syncguard"));
  const auto switches = [status = "/proc/" + std::to_string(std::stoi(file("guardian"))) + "/status"] {
    const auto text = text_of_file(status);
    const std::string name = "\nvoluntary_ctxt_switches:";
    const auto place = text.find(name);
    return place == std::string::npos ? -1 : std::stol(text.substr(place + name.size()));
  };
  // It asks, and is let go on, and asks again: each is a few times that the guardian waits.
  const auto before = switches();
  ASSERT_GE(before, 0);
  ASSERT_TRUE(eventually([&] { return switches() > before + 1; })) << "it asks";
  const auto first = switches();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(switches(), first + 50);
  kill(std::stoi(file("syncguard")), SIGTERM);
  EXPECT_TRUE(eventually([&] { return !is_locked("k"); })) << "and can be ended";
}

TEST_F(RunAtATerminal, AJobInTheBackgroundAsksForTheTerminalByStopping) {
  terminal.type("$syncguard run -- sh -c 'read line; echo got $line' &\n");
  terminal.type("wait %1; echo back\n");
  ASSERT_THAT(terminal.wait_for("back"), Not(IsEmpty())) << terminal.everything();
  terminal.type("jobs; fg\n");
  ASSERT_THAT(terminal.wait_for("Stopped"), Not(IsEmpty())) << terminal.everything();
  terminal.type("hello\n");
  EXPECT_THAT(terminal.wait_for("got hello"), Not(IsEmpty())) << terminal.everything();
}

TEST_F(RunAtATerminal, AJobThatWasStoppedBeyondItsDeadlineNeverGoesOn) {
  terminal.type("$syncguard run --key k --ttl 6s -- bash -c 'trap \"echo on >> on\" CONT; echo begun; " + beat +
                "'; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  ASSERT_TRUE(beats());
  terminal.type(Terminal::ctrl_z);
  ASSERT_THAT(terminal.wait_for("code 148"), Not(IsEmpty())) << terminal.everything();
  expect_no_beat_once_another_has_the_lock();
  terminal.type("fg; echo code $?\n");
  EXPECT_THAT(terminal.wait_for("code 79"), Not(IsEmpty())) << terminal.everything();
  EXPECT_EQ(file("on"), "");
  expect_no_beat_once_another_has_the_lock();
}

TEST_F(RunAtATerminal, ShowsWhatItWaitsForInOneLineAndErasesIt) {
  auto locks = open(url);
  auto held = std::make_optional(locks.acquire("k"));
  terminal.type("$syncguard run --key k -- echo begun; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("waiting for "), Not(IsEmpty())) << terminal.everything();
  const auto first = terminal.wait_for("s: locked since 20");
  ASSERT_THAT(first, Not(IsEmpty())) << terminal.everything();
  ASSERT_THAT(terminal.wait_for("until 20"), Not(IsEmpty()));
  EXPECT_THAT(terminal.wait_for("\r\033[Kwaiting for "), Not(HasSubstr("\n")));
  const auto second = terminal.wait_for("s: locked since 20");
  ASSERT_THAT(second, Not(IsEmpty())) << terminal.everything();
  EXPECT_GT(std::stoi(second), std::stoi(first)) << "it counts, by seconds on a machine that has time for that";
  held.reset();
  EXPECT_THAT(terminal.wait_for("begun"), HasSubstr("\r\033[Kbegun"));
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty()));
}

TEST_F(RunAtATerminal, CtrlCEndsTheWaiting) {
  auto locks = open(url);
  const auto held = locks.acquire("k");
  terminal.type("$syncguard run --key k -- echo begun\n");
  ASSERT_THAT(terminal.wait_for("waiting for"), Not(IsEmpty()));
  interrupt();
  EXPECT_THAT(terminal.wait_for("code 130"), Not(HasSubstr("begun"))) << terminal.everything();
}

}  // namespace
}  // namespace syncguard::testing
