#include "os/password.hpp"

#include "support/expect_error.hpp"
#include "support/long_timeouts.hpp"

#include <gmock/gmock.h>

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>

namespace {

// How often the library tried to kill a process group whose leader is no longer a child of this process.
std::atomic<int> kills_of_strangers = 0;

}  // namespace

// Replaces kill() of the C library, and makes the same system call.
extern "C" int kill(pid_t process, int signal) noexcept {
  siginfo_t end{};
  if (process < 0 && waitid(P_PID, static_cast<id_t>(-process), &end, WEXITED | WNOHANG | WNOWAIT) != 0) {
    ++kills_of_strangers;
    errno = ESRCH;
    return -1;
  }
  return static_cast<int>(syscall(SYS_kill, process, signal));
}

namespace syncguard::os {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string ask(const std::string& command) { return ask_for_password(password_from_command(command)); }

std::string refusal_of(const std::string& command) {
  const auto error = testing::error_of([&] { (void)ask(command); });
  if (!error) return "none";
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_TRUE(error->retryable());
  return error->what();
}

TEST(Password, CommandOutputWithoutNewlineIsThePassword) {
  EXPECT_EQ(ask("echo geheim"), "geheim");
  EXPECT_EQ(ask("printf 'two words\\n\\n'"), "two words\n");
  EXPECT_EQ(ask("printf 'windows\\r\\n'"), "windows");
  EXPECT_EQ(ask("cat; printf no-input"), "no-input") << "standard input is empty";
}

TEST(Password, FailedCommandIsReportedWithoutItsOutput) {
  const auto failed = refusal_of("echo geheim; exit 3");
  EXPECT_THAT(failed, HasSubstr("exit status 3"));
  EXPECT_THAT(failed, Not(HasSubstr("geheim")));
  EXPECT_THAT(refusal_of("kill -9 $$"), HasSubstr("signal 9"));
  EXPECT_THAT(refusal_of("true"), HasSubstr("empty password"));
  EXPECT_THAT(refusal_of("printf 'geheim\\000x'"), HasSubstr("NUL"));
  EXPECT_THAT(refusal_of("/no/such/program 2>/dev/null"), HasSubstr("exit status 127"));
}

TEST(Password, EndlessOutputEndsTheCommand) { EXPECT_THAT(refusal_of("yes geheim"), HasSubstr("64 KiB")); }

TEST(Password, ChildInTheBackgroundIsNotWaitedFor) {
  const auto start = std::chrono::steady_clock::now();
  // The background process keeps the pipe open, as an agent that the command starts may do.
  const pid_t background = std::stoi(ask("sleep 1000 & echo $!"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, testing::soon);
  EXPECT_EQ(::kill(background, SIGKILL), 0) << "the background process must still run";
}

TEST(Password, NoGroupIsKilledAfterItsLeaderIsGone) {
  // With SIGCHLD ignored, the kernel removes ended children immediately and may reuse their ids.
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const int attempts = kills_of_strangers;
  for (const auto* const command :
       {"(sleep 0.2; exec yes) & exit 0", "head -c 70000 /dev/zero", "yes | head -c 70000"}) {
    EXPECT_NE(refusal_of(command), "none");
  }
  std::signal(SIGCHLD, before);
  EXPECT_EQ(kills_of_strangers, attempts);
}

TEST(Password, CommandStartsWithDefaultSignals) {
  // A shell cannot undo an ignored or blocked signal that it inherited.
  EXPECT_THAT(refusal_of("kill -TERM $$; echo survived"), HasSubstr("signal 15"));
}

TEST(Password, ThrowingCallbackKeepsItsCause) {
  const auto error = testing::error_of(
      [] { (void)ask_for_password([]() -> std::string { throw std::runtime_error("no token today"); }); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_THAT(error->what(), Not(HasSubstr("no token today")));
  EXPECT_TRUE(error->context().cause);
}

TEST(Password, EmptyCommandIsRejected) {
  testing::expect_error(ErrorCode::invalid_argument, [] { (void)password_from_command(""); });
}

}  // namespace
}  // namespace syncguard::os
