// `syncguard run` in normal operation.

#include "e2e/run_fixture.hpp"

namespace syncguard::testing {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

TEST_F(Run, ReturnsExitCodeOfCommand) {
  EXPECT_EQ(run({"run", "--", "true"}).exit_code, 0);
  EXPECT_EQ(run({"run", "--key", "sh", "--", "sh", "-c", "exit 42"}).exit_code, 42);
  EXPECT_EQ(run({"run", "--key", "sh", "--", "sh", "-c", "kill -KILL $$"}).exit_code, 128 + SIGKILL);
  EXPECT_EQ(run({"run", "--key", "sh", "--", "sh", "-c", "kill -TERM $$"}).exit_code, 128 + SIGTERM);
  const auto missing = run({"run", "--", "no-such-command"});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("no-such-command"));
  EXPECT_EQ(run({"run", "--", "/etc"}).exit_code, 126);
  EXPECT_FALSE(is_locked("no-such-command")) << "the lock must be released";
}

TEST_F(Run, CommandGetsArgumentsInputAndLock) {
  const auto echo = run({"run", "--", "printf", "<%s>", "--json", "-x", "", "a b", "--", "[c,d]"});
  EXPECT_EQ(echo.out, "<--json><-x><><a b><--><[c,d]>");
  EXPECT_THAT(echo.err, IsEmpty());

  const auto variables = run({"run", "--key", "my key", "--", "sh", "-c",
                              "echo $SYNCGUARD_KEY; echo $SYNCGUARD_LOCK_ID; echo $SYNCGUARD_FENCE"});
  std::istringstream lines(variables.out);
  std::string key;
  std::string id;
  std::string fence;
  std::getline(lines, key);
  std::getline(lines, id);
  std::getline(lines, fence);
  EXPECT_EQ(key, "my key");
  EXPECT_TRUE(LockId::is_valid(id));
  EXPECT_THAT(fence, MatchesRegex("[0-9]{15}"));
  EXPECT_EQ(run({"run", "--", "/usr/bin/printenv", "SYNCGUARD_KEY"}).out, "printenv\n")
      << "the default key is the command's name";
  EXPECT_EQ(run({"run", "--key", "sh", "--", "sh", "-c", "echo $SYNCGUARD_DEBUG"}).out, "\n");
}

// The name of a shell would be the same key for unrelated jobs.
TEST_F(Run, RequiresKeyForGenericCommands) {
  for (const char* program : {"sh", "/bin/bash", "dash", "zsh", "make", "python3", "/usr/bin/python3.11", "perl",
                              "node", "env", "sudo", "timeout", "nice"}) {
    const auto outcome = run({"run", "--", program, "x"});
    EXPECT_EQ(outcome.exit_code, 2) << program;
    EXPECT_THAT(outcome.err, HasSubstr("--key")) << program;
  }
  EXPECT_EQ(run({"run", "--key", "k", "--", "sh", "-c", "exit 3"}).exit_code, 3);
}

TEST_F(Run, HidesUrlFromCommandByDefault) {
  const std::string show = "echo \"${SYNCGUARD_URL-unset}\"";
  EXPECT_EQ(run({"run", "--key", "k", "--", "sh", "-c", show}).out, "\n");
  EXPECT_EQ(run({"run", "--key", "k", "--url", url, "--", "sh", "-c", show}).out, "\n");
  EXPECT_EQ(run({"run", "--key", "k", "--pass-url", "--", "sh", "-c", show}).out, url + "\n");
  const auto other = "sqlite:" + (folder.path() / "other.db").string();
  EXPECT_EQ(run({"run", "--key", "k", "--url", other, "--pass-url", "--", "sh", "-c", show}).out, other + "\n");
  const auto by_default = CommandProcess(url,
                                         {"-c", "unset SYNCGUARD_URL; XDG_STATE_HOME=" + folder.path().string() +
                                                    " " SYNCGUARD_COMMAND " run --key k -- sh -c '" + show + "'"},
                                         "/bin/sh")
                              .finish();
  EXPECT_EQ(by_default.out, "unset\n");
  // A syncguard inside the command must not use another store by accident.
  const auto inside = run({"run", "--key", "k", "--", SYNCGUARD_COMMAND, "acquire", "inner"});
  EXPECT_EQ(inside.exit_code, 2);
  EXPECT_THAT(inside.err, HasSubstr("--pass-url"));
}

TEST_F(Run, NestedRunOnSameKeyFailsImmediately) {
  for (const std::vector<std::string>& inner :
       {std::vector<std::string>{"run", "--key", "k", "--", "true"}, {"acquire", "k", "--wait", "1h"}}) {
    std::vector<std::string> words = {"run", "--key", "k", "--pass-url", "--", SYNCGUARD_COMMAND};
    words.insert(words.end(), inner.begin(), inner.end());
    const auto outcome = run(words);
    EXPECT_EQ(outcome.exit_code, 2) << inner[0];
    EXPECT_THAT(outcome.err, HasSubstr("would wait for itself")) << inner[0];
  }
  EXPECT_EQ(run({"run", "--key", "k", "--pass-url", "--", SYNCGUARD_COMMAND, "acquire", "k"}).exit_code, 75)
      << "an acquire that does not wait reports the conflict";
  const auto elsewhere = "sqlite:" + (folder.path() / "other.db").string();
  EXPECT_EQ(
      run({"run", "--key", "k", "--", SYNCGUARD_COMMAND, "--url", elsewhere, "run", "--key", "k", "true"}).exit_code, 0)
      << "another store is a different lock";
}

#ifdef SYNCGUARD_HAS_REDIS
TEST_F(Run, NestedRunOnSameKeyReportsAStoreThatFails) {
  // Without a reply, the inner command cannot know whether the lock is the outer one. It must not wait.
  EXPECT_EQ(run({"run", "--key", "k", "--", SYNCGUARD_COMMAND, "--url", "redis://127.0.0.1:1", "run", "--key", "k",
                 "--wait", "1h", "true"})
                .exit_code,
            69);
}
#endif

TEST_F(Run, HoldsLockForAtLeast) {
  CommandProcess holder(url, {"-v", "run", "--key", "k", "--ttl", "6s", "--at-least", "1h", "--", "true"});
  ASSERT_TRUE(eventually([&] { return holder.err().find("--at-least") != std::string::npos; }))
      << "the command must have ended";
  auto locks = open(url);
  const auto first = locks.lookup(Key("k")).value().expires_at;
  EXPECT_TRUE(eventually([&] { return locks.lookup(Key("k")).value().expires_at > first; }))
      << "the lock must be renewed";
  holder.send(SIGTERM);
  EXPECT_EQ(holder.finish().exit_code, 128 + SIGTERM);
  EXPECT_FALSE(is_locked("k")) << "the lock must be released";

  const auto start = steady_clock::now();
  EXPECT_EQ(run({"run", "--key", "k", "--at-least", "1s", "--", "sh", "-c", "exit 3"}).exit_code, 3);
  EXPECT_GE(steady_clock::now() - start, 1s);

  CommandProcess lost_lock(url, {"-v", "run", "--key", "k", "--ttl", "6s", "--at-least", "1h", "--", "true"});
  ASSERT_TRUE(eventually([&] { return lost_lock.err().find("--at-least") != std::string::npos; }));
  EXPECT_TRUE(locks.release(locks.admin().get_by_key_raw("k").value().lock_id));
  EXPECT_EQ(lost_lock.finish().exit_code, 79);
}

TEST_F(Run, HoldsLockForAtLeastWhateverEndsCommand) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> ends = {
      {{"--timeout", "100ms"}, "exec sleep 60"},
      {{"--timeout", "100ms", "--kill-after", "100ms"}, "trap '' TERM; while :; do sleep 0.01; done"},
      {{}, "kill -TERM $$"},
      {{}, "kill -KILL $$"},
      {{}, "kill -KILL $PPID; exec sleep 60"},  // the guardian
  };
  for (const auto& [options, text] : ends) {
    std::vector<std::string> words = {"--key", "k", "--at-least", "1h", "-v"};
    words.insert(words.end(), options.begin(), options.end());
    CommandProcess holder(url, shell(words, text));
    ASSERT_TRUE(eventually([&] { return holder.err().find("--at-least") != std::string::npos || holder.has_ended(); }));
    EXPECT_FALSE(holder.has_ended()) << text;
    EXPECT_TRUE(is_locked("k")) << text;
    holder.send(SIGTERM);
    holder.finish();
    EXPECT_FALSE(is_locked("k")) << "a signal to syncguard must release the lock: " << text;
  }
  const auto start = steady_clock::now();
  EXPECT_EQ(run({"run", "--key", "k", "--at-least", "1s", "--timeout", "100ms", "--", "sleep", "60"}).exit_code, 124);
  EXPECT_EQ(run(shell({"--key", "k", "--at-least", "1s"}, "kill -TERM $$")).exit_code, 128 + SIGTERM);
  EXPECT_EQ(run(shell({"--key", "k", "--at-least", "1s"}, "kill -KILL $PPID; exec sleep 60")).exit_code, 70);
  EXPECT_GE(steady_clock::now() - start, 3s);
}

TEST_F(Run, SignalToSyncguardEndsRunBeforeAtLeast) {
  for (const std::string command : {"exec sleep 60", "trap 'exit 3' TERM; while :; do sleep 0.01; done"}) {
    CommandProcess process(url, shell({"--key", "k", "--at-least", "1h"}, "echo > begun; " + command));
    ASSERT_TRUE(appears("begun"));
    std::filesystem::remove(folder.path() / "begun");
    process.send(SIGTERM);
    ASSERT_TRUE(eventually([&] { return process.has_ended(); })) << command;
    EXPECT_FALSE(is_locked("k"));
  }
  // The signal arrives when the command has already ended, but syncguard does not know it yet.
  CommandProcess process(url, shell({"--key", "k", "--at-least", "1h"},
                                    "echo $$ > leader; until test -e go; do sleep 0.01; done; exit 3"));
  ASSERT_TRUE(appears("leader"));
  const auto leader = std::filesystem::path("/proc") / std::to_string(std::stoi(file("leader")));
  process.stop();
  std::ofstream(folder.path() / "go") << "!";
  ASSERT_TRUE(eventually([&] { return !std::filesystem::exists(leader); }));
  process.send(SIGTERM);
  process.send(SIGCONT);
  ASSERT_TRUE(eventually([&] { return process.has_ended(); }));
  EXPECT_EQ(process.finish().exit_code, 3);
  EXPECT_FALSE(is_locked("k"));
}

// The command, or another process of the user, has used up the processes that the user may have.
TEST_F(Run, HoldsLockForAtLeastIfNoThreadCanBeStarted) {
  // The limit does not apply to root.
  std::vector<std::string> words = {"python3", "-c", R"(
import os, sys
program = os.open(sys.argv[1], os.O_RDONLY)
if os.getuid() == 0:
    os.chown(sys.argv[2], 65534, 65534)
    os.setuid(65534)
os.execve(program, [sys.argv[1], *sys.argv[3:]], os.environ)
)", SYNCGUARD_COMMAND, folder.path().string(), "-v"};
  const std::string set_limit = "prlimit --pid $(cut -d ' ' -f 4 /proc/$PPID/stat) --nproc=1:1 || exit; exit 3";
  for (const auto& word : shell({"--key", "k", "--at-least", "1h"}, set_limit)) words.push_back(word);
  CommandProcess process(url, words, "/usr/bin/env");
  ASSERT_TRUE(eventually([&] { return process.err().find("--at-least") != std::string::npos || process.has_ended(); }));
  EXPECT_FALSE(process.has_ended()) << process.err();
  process.send(SIGTERM);
  EXPECT_THAT(process.finish().err, HasSubstr("release: ok"));
}

// Another host may be able to run it.
TEST_F(Run, CommandThatCannotBeStartedReleasesLockBeforeAtLeast) {
  CommandProcess process(url, {"run", "--key", "k", "--at-least", "1h", "--", "no-such-command"});
  ASSERT_TRUE(eventually([&] { return process.has_ended(); }));
  EXPECT_EQ(process.finish().exit_code, 127);
  EXPECT_FALSE(is_locked("k"));
}

TEST_F(Run, EndsCommandAfterTimeout) {
  const auto pausing = run({"run", "--json", "--key", "k", "--timeout", "100ms", "--", "sleep", "60"});
  EXPECT_EQ(pausing.exit_code, 124);
  EXPECT_EQ(nlohmann::json::parse(pausing.err),
            (nlohmann::json{{"ok", false}, {"reason", "timeout"}, {"exitCode", 124}}));
  EXPECT_FALSE(is_locked("k"));
  // The command's exit code is ignored, and processes that it leaves in its group are ended as well.
  const auto ignores_sigterm =
      run(shell({"--key", "k", "--timeout", "100ms", "--kill-after", "200ms"},
                "trap 'echo signaled >> signaled' TERM; (trap '' TERM; " + beat + ") & " + beat));
  EXPECT_EQ(ignores_sigterm.exit_code, 124);
  EXPECT_THAT(ignores_sigterm.err, HasSubstr("--timeout"));
  EXPECT_FALSE(file("signaled").empty());
  expect_no_heartbeat_after_takeover();
  EXPECT_EQ(run({"run", "--key", "k", "--timeout", "1h", "--", "sh", "-c", "exit 4"}).exit_code, 4);
}

TEST_F(Run, ArgumentsAfterCommandNameBelongToCommand) {
  EXPECT_EQ(run({"run", "echo", "short"}).out, "short\n");
  EXPECT_EQ(run({"run", "printf", "<%s>", "-v", "--json", "--key", "x", "--", "-y", "--help"}).out,
            "<-v><--json><--key><x><--><-y><--help>");
  const auto id_like = std::string("-") + std::string(21, 'A');
  EXPECT_EQ(run({"-q", "run", "--key", "k", "--ttl=1m", "--wait", "1s", "printf", "<%s>", id_like}).out,
            "<" + id_like + ">");
  EXPECT_EQ(run({"run", "--url", url, "--no-wait", "printenv", "SYNCGUARD_KEY"}).out, "printenv\n");
  EXPECT_EQ(run({"run", "echo", "run"}).out, "run\n");
}

TEST_F(Run, HoldsLockFromBeforeStartUntilAfterEnd) {
  CommandProcess holder(url, shell({"--key", "k"}, "touch begun; until test -e go; do sleep 0.01; done; touch ended"));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.path() / "begun"); }));
  EXPECT_TRUE(is_locked("k"));
  const auto refused = run({"run", "--key", "k", "--no-wait", "--", "touch", (folder.path() / "never").string()});
  EXPECT_EQ(refused.exit_code, 75);
  EXPECT_THAT(refused.err, HasSubstr("locked by another holder"));
  EXPECT_EQ(run({"run", "--key", "k", "--no-wait", "--conflict-exit-code", "9", "--", "true"}).exit_code, 9);
  const auto start = steady_clock::now();
  EXPECT_EQ(run({"run", "--key", "k", "--wait", "200ms", "--", "true"}).exit_code, 75);
  EXPECT_GE(steady_clock::now() - start, 200ms);
  const auto json = run({"--json", "run", "--key", "k", "--no-wait", "--", "true"});
  EXPECT_EQ(nlohmann::json::parse(json.err), (nlohmann::json{{"ok", false}, {"reason", "locked"}}));

  CommandProcess waiting(url, shell({"--key", "k"}, "test -e ended && touch after"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "after"));
  std::ofstream(folder.path() / "go") << "!";
  EXPECT_EQ(holder.finish().exit_code, 0);
  EXPECT_EQ(waiting.finish().exit_code, 0) << "the command must start only after the holder has ended";
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "never"));
  EXPECT_FALSE(is_locked("k"));
}

TEST_F(Run, WritesJsonToStderr) {
  const auto outcome = run({"run", "--json", "--key", "sh", "--", "sh", "-c", "echo mine; exit 3"});
  EXPECT_EQ(outcome.out, "mine\n");
  const auto object = nlohmann::json::parse(outcome.err);
  EXPECT_EQ(object.at("ok"), true);
  EXPECT_TRUE(LockId::is_valid(object.at("lockId").get<std::string>()));
  EXPECT_THAT(object.at("fence").get<std::string>(), MatchesRegex("[0-9]{15}"));
  EXPECT_TRUE(object.at("expiresAtMs").is_number_integer());
  EXPECT_EQ(object.at("exitCode"), 3);
  const auto missing = run({"run", "--json", "--", "no-such-command"});
  EXPECT_EQ(nlohmann::json::parse(missing.err),
            (nlohmann::json{{"ok", false}, {"reason", "not-started"}, {"exitCode", 127}}));
  const auto wrong = run({"run", "--json", "--ttl", "never", "--", "true"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(nlohmann::json::parse(wrong.err).at("error").at("code"), "InvalidArgument");
  const auto unavailable = run({"--url", "sqlite:/dev/null/x", "run", "--json", "--", "true"});
  EXPECT_EQ(unavailable.exit_code, 69);
  EXPECT_EQ(nlohmann::json::parse(unavailable.err).at("error").at("code"), "ServiceUnavailable");
  EXPECT_THAT(unavailable.out, IsEmpty());
}

TEST_F(Run, ReportsInvalidArguments) {
  const auto expect_usage_error = [&](std::vector<std::string> arguments, const std::string& about) {
    const auto outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(about));
  };
  expect_usage_error({"run"}, "CMD");
  expect_usage_error({"run", "--"}, "CMD");
  expect_usage_error({"run", "--key"}, "--key");
  expect_usage_error({"run", "--kye", "k", "true"}, "--kye");
  expect_usage_error({"run", "--kye", "k", "--", "true"}, "--kye");
  expect_usage_error({"run", "--wait", "1s", "--no-wait", "--", "true"}, "--no-wait");
  expect_usage_error({"run", "--lost-exit-code", "256", "--", "true"}, "--lost-exit-code");
  expect_usage_error({"run", "--ttl", "0s", "--", "true"}, "ttl must be");
  expect_usage_error({"-q", "-v", "run", "--", "true"}, "--verbose");
  expect_usage_error({"run", "--key", "", "--ttl", "5 parsecs", "--", "true"}, "--ttl");
}

TEST_F(Run, RenewsLockWhileCommandRuns) {
  CommandProcess holder(url, shell({"--key", "k", "--ttl", "12s"}, "until test -e go; do sleep 0.01; done"));
  auto locks = open(url);
  ASSERT_TRUE(eventually([&] { return locks.is_locked("k"); }));
  const auto first = locks.lookup(Key("k"))->expires_at;
  ASSERT_TRUE(eventually([&] { return locks.lookup(Key("k")).value().expires_at > first + 4s; }));
  EXPECT_FALSE(holder.has_ended()) << "the guardian must know the new deadline";
  std::ofstream(folder.path() / "go") << "!";
  EXPECT_EQ(holder.finish().exit_code, 0);
}

}  // namespace
}  // namespace syncguard::testing
