// `syncguard run` at a terminal: Ctrl-C, Ctrl-Z, background jobs, and the display while it waits.

#include "e2e/run_fixture.hpp"
#include "e2e/terminal.hpp"

#include <optional>

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct RunAtTerminal : Run {
  Terminal terminal{url};

  RunAtTerminal() { terminal.type("cd " + folder.path().string() + "\n"); }

  // Presses Ctrl-C and prints the exit code. The echo is on its own line, because a shell skips the rest of a line
  // whose command SIGINT killed.
  void interrupt() const {
    terminal.type(Terminal::ctrl_c);
    terminal.type("echo code $?\n");
  }
};

TEST_F(RunAtTerminal, CtrlCEndsCommand) {
  terminal.type("$syncguard run --key k -- sh -c 'echo begun; exec sleep 60'\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  interrupt();
  EXPECT_THAT(terminal.wait_for("code 130"), Not(IsEmpty())) << terminal.everything();
  EXPECT_FALSE(is_locked("k"));
}

// The terminal sends Ctrl-C only to the command, but it was meant for syncguard, too.
TEST_F(RunAtTerminal, CtrlCEndsRunBeforeAtLeast) {
  terminal.type("$syncguard run --key k --at-least 1h -- sh -c 'echo begun; exec sleep 60'\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  interrupt();
  EXPECT_THAT(terminal.wait_for("code 130"), Not(IsEmpty())) << terminal.everything();
  EXPECT_FALSE(is_locked("k"));
}

TEST_F(RunAtTerminal, CommandCanHandleCtrlC) {
  terminal.type(
      "$syncguard run --key k -- bash -c 'trap \"exit 7\" INT; echo begun; while :; do sleep 0.01; done'; "
      "echo code $?\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  terminal.type(Terminal::ctrl_c);
  EXPECT_THAT(terminal.wait_for("code 7"), Not(IsEmpty())) << terminal.everything();
}

TEST_F(RunAtTerminal, CtrlCAlsoEndsEnclosingScript) {
  // With the terminal as standard output, and with a file.
  for (const std::string where : {"", " > out"}) {
    terminal.type("bash -c '$syncguard run --key k -- sh -c \"echo begun > /dev/tty; exec sleep 60\"" + where +
                  "; echo went on'\n");
    ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
    interrupt();
    EXPECT_THAT(terminal.wait_for("code 130"), Not(HasSubstr("went on"))) << where;
    EXPECT_FALSE(is_locked("k"));
  }
}

TEST_F(RunAtTerminal, CtrlCAlsoEndsEnclosingScriptWhileWaiting) {
  auto locks = open(url);
  const auto held = locks.acquire("k");
  for (const std::string command : {"run --key k -- true", "acquire k --wait 1m"}) {
    terminal.type("bash -c '$syncguard " + command + "; echo went on'\n");
    ASSERT_THAT(terminal.wait_for("waiting for"), Not(IsEmpty()));
    interrupt();
    EXPECT_THAT(terminal.wait_for("code 130"), Not(HasSubstr("went on"))) << command;
  }
}

TEST_F(RunAtTerminal, CommandReadsFromTerminal) {
  terminal.type("$syncguard run --key sh -- sh -c 'echo begun; read line; echo got $line'; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  terminal.type("hello\n");
  EXPECT_THAT(terminal.wait_for("got hello"), Not(IsEmpty())) << terminal.everything();
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty())) << "the shell must get the terminal back";
}

TEST_F(RunAtTerminal, CommandInPipelineGetsTerminalOnDemand) {
  terminal.type(
      "$syncguard run --key sh -- sh -c 'echo begun > /dev/tty; read line < /dev/tty; echo got $line' | cat; "
      "echo code ${PIPESTATUS[0]}\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  terminal.type("hello\n");
  EXPECT_THAT(terminal.wait_for("got hello"), Not(IsEmpty())) << terminal.everything();
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty()));
}

TEST_F(RunAtTerminal, OtherPartsOfPipelineGetTerminalAfterFg) {
  terminal.type(
      "$syncguard run --key sh --ttl 1m -- "
      "sh -c 'echo begun > /dev/tty; read line < /dev/tty; echo first $line; until test -e go; do sleep 0.01; done' | "
      "sh -c 'read line; echo $line; read line < /dev/tty; echo second $line; touch go'; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  terminal.type("hello\n");
  ASSERT_THAT(terminal.wait_for("first hello"), Not(IsEmpty())) << terminal.everything();
  ASSERT_THAT(terminal.wait_for("code 149"), Not(IsEmpty())) << "the command still has the terminal";
  terminal.type("fg; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("second"), Not(IsEmpty())) << "fg shows the command line";
  terminal.type("again\n");
  EXPECT_THAT(terminal.wait_for("second again"), Not(IsEmpty())) << terminal.everything();
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty()));
}

TEST_F(RunAtTerminal, ProcessThatCommandLeftBehindGetsTerminalOnDemand) {
  terminal.type(
      "$syncguard run --key sh -- sh -c '(while kill -0 $$ 2> /dev/null; do sleep 0.01; done; echo begun > /dev/tty; "
      "read line < /dev/tty; echo got $line) & exit 3' | cat; echo code ${PIPESTATUS[0]}\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  terminal.type("hello\n");
  EXPECT_THAT(terminal.wait_for("got hello"), Not(IsEmpty())) << terminal.everything();
  EXPECT_THAT(terminal.wait_for("code 3"), Not(IsEmpty()));
}

// An interactive shell would take the raw mode for its user's, because syncguard itself was not killed.
TEST_F(RunAtTerminal, RestoresTerminalModeIfCommandIsKilled) {
  const std::string show_mode = "echo mode $(stty -a | grep -o '[- ]icanon')\n";
  terminal.type("$syncguard run --key k -- sh -c 'stty raw; echo $$ > command; exec sleep 60'; echo code $?\n");
  ASSERT_TRUE(appears("command"));
  kill(std::stoi(file("command")), SIGKILL);
  ASSERT_THAT(terminal.wait_for("code 137"), Not(IsEmpty()));
  terminal.type(show_mode);
  EXPECT_THAT(terminal.wait_for("mode icanon"), Not(IsEmpty())) << "after a signal from outside";

  terminal.type("$syncguard run --key k --timeout 1s -- sh -c 'stty raw; exec sleep 60'; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("code 124"), Not(IsEmpty()));
  terminal.type(show_mode);
  EXPECT_THAT(terminal.wait_for("mode icanon"), Not(IsEmpty())) << "after --timeout";

  terminal.type("$syncguard run --key k -- stty -icanon; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("code 0"), Not(IsEmpty()));
  terminal.type(show_mode);
  EXPECT_THAT(terminal.wait_for("mode -icanon"), Not(IsEmpty())) << "a command that ends by itself may set the mode";
}

TEST_F(RunAtTerminal, ScriptGetsTerminalBackIfGuardianIsKilled) {
  terminal.type(
      "bash -c '$syncguard run --key k -- sh -c \"stty raw; echo \\$PPID > guardian; exec sleep 60\"; echo code $?; "
      "read line; echo got $line'\n");
  ASSERT_TRUE(appears("guardian"));
  kill(std::stoi(file("guardian")), SIGKILL);
  ASSERT_THAT(terminal.wait_for("code 70"), Not(IsEmpty()));
  terminal.type("hello\n");
  EXPECT_THAT(terminal.wait_for("got hello"), Not(IsEmpty())) << terminal.everything();
  terminal.type("echo mode $(stty -a | grep -o '[- ]icanon')\n");
  EXPECT_THAT(terminal.wait_for("mode icanon"), Not(IsEmpty()));
}

TEST_F(RunAtTerminal, CtrlZStopsJobAndFgResumesIt) {
  terminal.type(
      "$syncguard run --key k --ttl 1m -- bash -c 'echo begun; until test -e go; do sleep 0.01; done; "
      "echo finished'; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  terminal.type(Terminal::ctrl_z);
  ASSERT_THAT(terminal.wait_for("Stopped"), Not(IsEmpty())) << terminal.everything();
  ASSERT_THAT(terminal.wait_for("code 148"), Not(IsEmpty())) << "the shell must get the terminal back";
  std::ofstream(folder.path() / "go") << "!";
  EXPECT_TRUE(is_locked("k"));
  terminal.type("echo still here; fg; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("still here"), Not(HasSubstr("finished")));
  EXPECT_THAT(terminal.wait_for("finished"), Not(IsEmpty())) << terminal.everything();
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty()));
  EXPECT_FALSE(is_locked("k"));
}

TEST_F(RunAtTerminal, CtrlZAlsoStopsEnclosingScript) {
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

TEST_F(RunAtTerminal, StoppingCommandStopsJob) {
  terminal.type(
      "$syncguard run --key k --ttl 1m -- sh -c 'echo $$ > command; until test -e go; do sleep 0.01; done'; "
      "echo code $?\n");
  ASSERT_TRUE(appears("command"));
  kill(std::stoi(file("command")), SIGSTOP);
  ASSERT_THAT(terminal.wait_for("code 148"), Not(IsEmpty()));
  std::ofstream(folder.path() / "go") << "!";
  terminal.type("fg; echo code $?\n");
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty()));
}

TEST_F(RunAtTerminal, StoppedCommandKeepsLockWithoutJobControl) {
  // Replaces the shell, as with `ssh -t host syncguard run …`.
  terminal.type(
      "exec $syncguard run --key k --ttl 6s -- "
      "sh -c 'echo $$ > command; until test -e go; do sleep 0.01; done; echo finished'\n");
  ASSERT_TRUE(appears("command"));
  const pid_t command = std::stoi(file("command"));
  kill(command, SIGSTOP);
  auto locks = open(url);
  const auto first = locks.lookup(Key("k")).value().expires_at;
  ASSERT_TRUE(eventually([&] { return locks.lookup(Key("k")).value().expires_at > first + 3s; }))
      << "the lock must be renewed while the command is stopped";
  EXPECT_THAT(text_of_file("/proc/" + std::to_string(command) + "/stat"), HasSubstr(") T "))
      << "the command must still be stopped";
  std::ofstream(folder.path() / "go") << "!";
  kill(command, SIGCONT);
  EXPECT_THAT(terminal.wait_for("finished"), Not(IsEmpty()));
}

TEST_F(RunAtTerminal, CommandThatCannotGetTerminalDoesNotSpin) {
  // The subshell exits immediately, so no shell controls this job.
  terminal.type(
      "($syncguard run --key k -- sh -c 'echo $PPID > guardian; read line < /dev/tty' & echo $! > syncguard)\n");
  ASSERT_TRUE(appears("guardian"));
  ASSERT_TRUE(appears("syncguard"));
  const auto switches = [status = "/proc/" + std::to_string(std::stoi(file("guardian"))) + "/status"] {
    const auto text = text_of_file(status);
    const std::string name = "\nvoluntary_ctxt_switches:";
    const auto place = text.find(name);
    return place == std::string::npos ? -1 : std::stol(text.substr(place + name.size()));
  };
  // The command asks for the terminal, is resumed, and asks again. Each round is a few context switches of the
  // guardian.
  const auto before = switches();
  ASSERT_GE(before, 0);
  ASSERT_TRUE(eventually([&] { return switches() > before + 1; })) << "the command must ask for the terminal";
  const auto first = switches();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(switches(), first + 50);
  kill(std::stoi(file("syncguard")), SIGTERM);
  EXPECT_TRUE(eventually([&] { return !is_locked("k"); })) << "a signal must end the command";
}

TEST_F(RunAtTerminal, BackgroundJobStopsWhenItNeedsTerminal) {
  terminal.type("$syncguard run --key sh -- sh -c 'read line; echo got $line' &\n");
  terminal.type("wait %1; echo back\n");
  ASSERT_THAT(terminal.wait_for("back"), Not(IsEmpty())) << terminal.everything();
  terminal.type("jobs; fg\n");
  ASSERT_THAT(terminal.wait_for("Stopped"), Not(IsEmpty())) << terminal.everything();
  terminal.type("hello\n");
  EXPECT_THAT(terminal.wait_for("got hello"), Not(IsEmpty())) << terminal.everything();
}

TEST_F(RunAtTerminal, JobStoppedBeyondDeadlineNeverResumes) {
  terminal.type("$syncguard run --key k --ttl 6s -- bash -c 'trap \"echo on >> on\" CONT; echo begun; " + beat +
                "'; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("begun"), Not(IsEmpty()));
  ASSERT_TRUE(beats());
  terminal.type(Terminal::ctrl_z);
  ASSERT_THAT(terminal.wait_for("code 148"), Not(IsEmpty())) << terminal.everything();
  expect_no_heartbeat_after_takeover();
  terminal.type("fg; echo code $?\n");
  EXPECT_THAT(terminal.wait_for("code 79"), Not(IsEmpty())) << terminal.everything();
  EXPECT_EQ(file("on"), "");
  expect_no_heartbeat_after_takeover();
}

TEST_F(RunAtTerminal, ShowsWaitStatusInOneLineAndErasesIt) {
  auto locks = open(url);
  auto held = std::make_optional(locks.acquire("k"));
  terminal.type("$syncguard run --key k -- echo begun; echo code $?\n");
  ASSERT_THAT(terminal.wait_for("waiting for "), Not(IsEmpty())) << terminal.everything();
  const auto first = terminal.wait_for("s: locked by ");
  ASSERT_THAT(first, Not(IsEmpty())) << terminal.everything();
  ASSERT_THAT(terminal.wait_for("until 20"), Not(IsEmpty()));
  EXPECT_THAT(terminal.wait_for("\r\033[Kwaiting for "), Not(HasSubstr("\n")));
  const auto second = terminal.wait_for("s: locked by ");
  ASSERT_THAT(second, Not(IsEmpty())) << terminal.everything();
  EXPECT_GT(std::stoi(second), std::stoi(first)) << "the seconds must increase";
  held.reset();
  EXPECT_THAT(terminal.wait_for("begun"), HasSubstr("\r\033[Kbegun"));
  EXPECT_THAT(terminal.wait_for("code 0"), Not(IsEmpty()));
}

// The line would overwrite what the user types.
TEST_F(RunAtTerminal, BackgroundJobShowsNoWaitStatus) {
  auto locks = open(url);
  const auto held = locks.acquire("k");
  terminal.type("$syncguard acquire k --wait 500ms & wait %1; echo code $?\n");
  EXPECT_THAT(terminal.wait_for("code 75"), Not(HasSubstr("waiting for")));
}

TEST_F(RunAtTerminal, CtrlCEndsWait) {
  auto locks = open(url);
  const auto held = locks.acquire("k");
  terminal.type("$syncguard run --key k -- echo begun\n");
  ASSERT_THAT(terminal.wait_for("waiting for"), Not(IsEmpty()));
  interrupt();
  EXPECT_THAT(terminal.wait_for("code 130"), Not(HasSubstr("begun"))) << terminal.everything();
}

}  // namespace
}  // namespace syncguard::testing
