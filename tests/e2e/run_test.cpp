// `syncguard run`: by running it, stopping it, killing it, and taking its server away.

#include "e2e/run_fixture.hpp"
#if SYNCGUARD_HAS_REDIS
#include "servers/loopback.hpp"
#include "servers/redis_server.hpp"
#endif

#include <syncguard/registry.hpp>

namespace syncguard::testing {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---------------------------------------------------------------------------------------------------------------------
// The ordinary course of things

TEST_F(Run, ReturnsWhatTheCommandReturns) {
  EXPECT_EQ(run({"run", "--", "true"}).exit_code, 0);
  EXPECT_EQ(run({"run", "--", "sh", "-c", "exit 42"}).exit_code, 42);
  EXPECT_EQ(run({"run", "--", "sh", "-c", "kill -KILL $$"}).exit_code, 128 + SIGKILL);
  EXPECT_EQ(run({"run", "--", "sh", "-c", "kill -TERM $$"}).exit_code, 128 + SIGTERM);
  const auto missing = run({"run", "--", "no-such-command"});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("no-such-command"));
  EXPECT_EQ(run({"run", "--", "/etc"}).exit_code, 126);
  EXPECT_FALSE(is_locked("no-such-command")) << "released all the same";
}

TEST_F(Run, GivesTheCommandItsArgumentsItsInputAndItsLock) {
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
  EXPECT_EQ(fence, "000000000000001");
  EXPECT_EQ(run({"run", "--", "/bin/sh", "-c", "echo $SYNCGUARD_KEY"}).out, "sh\n") << "by default its name";
  EXPECT_EQ(run({"run", "--", "sh", "-c", "echo $SYNCGUARD_DEBUG"}).out, "\n");
}

TEST_F(Run, LeavesToTheCommandWhatFollowsItsName) {
  EXPECT_EQ(run({"run", "echo", "short"}).out, "short\n");
  EXPECT_EQ(run({"run", "printf", "<%s>", "-v", "--json", "--key", "x", "--", "-y", "--help"}).out,
            "<-v><--json><--key><x><--><-y><--help>");
  const auto id_like = std::string("-") + std::string(21, 'A');
  EXPECT_EQ(run({"-q", "run", "--key", "k", "--ttl=1m", "--wait", "1s", "printf", "<%s>", id_like}).out,
            "<" + id_like + ">");
  EXPECT_EQ(run({"run", "--url", url, "--no-wait", "sh", "-c", "echo $SYNCGUARD_KEY"}).out, "sh\n");
  EXPECT_EQ(run({"run", "echo", "run"}).out, "run\n");
}

TEST_F(Run, HoldsTheLockFromBeforeTheCommandStartsUntilItHasEnded) {
  CommandProcess holder(url, shell({"--key", "k"}, "touch begun; until test -e go; do sleep 0.01; done; touch ended"));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.path() / "begun"); }));
  EXPECT_TRUE(is_locked("k"));
  const auto refused = run({"run", "--key", "k", "--no-wait", "--", "touch", (folder.path() / "never").string()});
  EXPECT_EQ(refused.exit_code, 75);
  EXPECT_THAT(refused.err, HasSubstr("locked by somebody else"));
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
  EXPECT_EQ(waiting.finish().exit_code, 0) << "waits for as long as it takes, and starts only then";
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "never"));
  EXPECT_FALSE(is_locked("k"));
}

TEST_F(Run, WritesItsObjectToStderrBecauseStdoutIsTheCommands) {
  const auto outcome = run({"run", "--json", "--", "sh", "-c", "echo mine; exit 3"});
  EXPECT_EQ(outcome.out, "mine\n");
  const auto object = nlohmann::json::parse(outcome.err);
  EXPECT_EQ(object.at("ok"), true);
  EXPECT_TRUE(LockId::is_valid(object.at("lockId").get<std::string>()));
  EXPECT_EQ(object.at("fence"), "000000000000001");
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

TEST_F(Run, SaysWhatIsWrongWithItsArguments) {
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

TEST_F(Run, RenewsTheLockWhileTheCommandRuns) {
  CommandProcess holder(url, shell({"--key", "k", "--ttl", "6s"}, "until test -e go; do sleep 0.01; done"));
  auto locks = open(url);
  ASSERT_TRUE(eventually([&] { return locks.is_locked("k"); }));
  const auto first = locks.lookup(Key("k"))->expires_at;
  ASSERT_TRUE(eventually([&] { return locks.lookup(Key("k")).value().expires_at > first + 3s; }));
  EXPECT_FALSE(holder.has_ended()) << "the guardian was told";
  std::ofstream(folder.path() / "go") << "!";
  EXPECT_EQ(holder.finish().exit_code, 0);
}

TEST_F(Run, PassesSignalsOn) {
  for (const auto& [name, number] : {std::pair("INT", SIGINT),
                                     {"TERM", SIGTERM},
                                     {"HUP", SIGHUP},
                                     {"QUIT", SIGQUIT},
                                     {"USR1", SIGUSR1},
                                     {"USR2", SIGUSR2},
                                     {"WINCH", SIGWINCH}}) {
    CommandProcess process(url, {"run", "--", "bash", "-c",
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

TEST_F(Run, IsInterruptedWhileItWaits) {
  auto locks = open(url);
  const auto held = locks.acquire("k");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    CommandProcess waiting(url, {"run", "--key", "k", "-v", "--", "true"});
    ASSERT_TRUE(eventually([&] { return waits_for_signals(waiting.pid()); }));
    waiting.send(signal);
    EXPECT_EQ(waiting.finish().exit_code, 130);
  }
}

TEST_F(Run, IgnoresWhatItWasStartedToIgnore) {
  CommandProcess process(url,
                         {"run", "--", "sh", "-c",
                          "echo ready; until test -e " + (folder.path() / "go").string() + "; do sleep 0.01; done"});
  ASSERT_TRUE(eventually([&] { return process.out() == "ready\n"; }));
  // nohup, around all of it
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

// ---------------------------------------------------------------------------------------------------------------------
// What the command leaves behind

TEST_F(Run, KeepsTheLockUntilNothingOfTheCommandsGroupIsLeft) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "6s"},
                                    "echo $$ > leader; "
                                    "(until test -e go; do sleep 0.01; done; date +%s%N >> beats) & exit 5"));
  ASSERT_TRUE(comes("leader"));
  const auto leader = std::filesystem::path("/proc") / std::to_string(std::stoi(file("leader")));
  ASSERT_TRUE(eventually([&] { return !std::filesystem::exists(leader); }));
  auto locks = open(url);
  const auto first = locks.lookup(Key("k")).value().expires_at;
  EXPECT_TRUE(eventually([&] { return locks.lookup(Key("k")).value().expires_at > first; })) << "still renewed";
  EXPECT_FALSE(process.has_ended()) << "the grandchild still runs";
  std::ofstream(folder.path() / "go") << "!";
  EXPECT_EQ(process.finish().exit_code, 5);
  EXPECT_FALSE(file("beats").empty());
  EXPECT_FALSE(is_locked("k"));
}

TEST_F(Run, KillsGrandchildrenTooWhenTheLockIsGone) {
  CommandProcess process(
      url, shell({"--key", "k", "--ttl", "6s"}, "(trap '' TERM; " + beat + ") & (" + beat + ") & exit 0"));
  ASSERT_TRUE(beats());
  auto locks = open(url);
  EXPECT_TRUE(locks.release(locks.get_by_key_raw("k").value().lock_id));
  EXPECT_EQ(process.finish().exit_code, 79);
  expect_no_beat_once_another_has_the_lock();
}

// ---------------------------------------------------------------------------------------------------------------------
// A lock that is lost

TEST_F(Run, KillsAtOnceWhenTheBackendSaysThatTheLockIsGone) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "15s", "--json"}, "trap '' TERM; " + beat));
  ASSERT_TRUE(beats());
  auto locks = open(url);
  EXPECT_TRUE(locks.release(locks.get_by_key_raw("k").value().lock_id));
  const auto start = steady_clock::now();
  const auto outcome = process.finish();
  EXPECT_LT(steady_clock::now() - start, 12s) << "at the next renewal, in five seconds at most, not at the deadline";
  EXPECT_EQ(outcome.exit_code, 79);
  EXPECT_EQ(nlohmann::json::parse(outcome.err), (nlohmann::json{{"ok", false}, {"reason", "lost"}, {"exitCode", 79}}));
  expect_no_beat_once_another_has_the_lock();
}

TEST_F(Run, SaysThatTheLockWasGoneWhenTheCommandEnded) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "1m", "--lost-exit-code", "33"},
                                    "touch begun; until test -e go; do sleep 0.01; done"));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.path() / "begun"); }));
  auto locks = open(url);
  EXPECT_TRUE(locks.release(locks.get_by_key_raw("k").value().lock_id));
  std::ofstream(folder.path() / "go") << "!";
  const auto outcome = process.finish();
  EXPECT_EQ(outcome.exit_code, 33);
  EXPECT_THAT(outcome.err, HasSubstr("others may have run beside it"));
}

#if SYNCGUARD_HAS_REDIS
TEST_F(Run, EndsTheCommandBeforeTheLockExpiresOnAServerThatWasStopped) {
  RedisServer server;
  url = server.plain_url();
  // One that ends when it is told to, and one that does not.
  CommandProcess polite(url,
                        shell({"--key", "p", "--ttl", "9s", "--kill-after", "3s"},
                              "trap 'echo bye > farewell; exit 0' TERM; echo > begun; while :; do sleep 0.01; done"));
  CommandProcess stubborn(
      url, shell({"--key", "k", "--ttl", "9s", "--kill-after", "3s"}, "trap 'date +%s%N >> told' TERM; " + beat));
  ASSERT_TRUE(comes("begun"));
  ASSERT_TRUE(beats());
  const auto expiry = [&] { return open(url).lookup(Key("k")).value().expires_at; };
  const auto first = expiry();
  ASSERT_TRUE(eventually([&] { return expiry() > first; })) << "renewed at least once";
  server.pause();
  EXPECT_EQ(polite.finish().exit_code, 79);
  const auto outcome = stubborn.finish();
  const auto ended = std::chrono::system_clock::now().time_since_epoch();
  EXPECT_EQ(outcome.exit_code, 79);
  EXPECT_THAT(outcome.err, HasSubstr("the lock was lost"));
  EXPECT_EQ(file("farewell"), "bye\n");
  ASSERT_FALSE(file("told").empty()) << "SIGTERM came first";
  const auto told = std::chrono::nanoseconds(std::stoll(file("told")));
  EXPECT_GT(ended - told, 0s);
  EXPECT_LT(ended - told, 9s);
  server.resume();
  expect_no_beat_once_another_has_the_lock();
}

TEST_F(Run, DoesNotWaitForAServerThatIsNotThere) {
  const LoopbackSocket nobody;
  url = "redis://127.0.0.1:" + std::to_string(nobody.port());
  const auto outcome = run({"run", "--", "true"});
  EXPECT_EQ(outcome.exit_code, 69);
  EXPECT_THAT(outcome.err, HasSubstr("ServiceUnavailable"));
  EXPECT_EQ(run({"acquire", "k", "--wait", "1m"}).exit_code, 69);
}
#endif

// ---------------------------------------------------------------------------------------------------------------------
// syncguard itself in trouble

TEST_F(Run, AStoppedSyncguardDoesNotLetTheCommandOutliveTheLock) {
  CommandProcess process(
      url, shell({"--key", "k", "--ttl", "6s", "--kill-after", "3s"}, "trap 'echo told >> told' TERM; " + beat));
  ASSERT_TRUE(beats());
  process.stop();
  expect_no_beat_once_another_has_the_lock();
  EXPECT_FALSE(file("told").empty());
  process.send(SIGCONT);
  EXPECT_EQ(process.finish().exit_code, 79);
}

TEST_F(Run, AKilledSyncguardTakesTheCommandWithIt) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "6s", "--kill-after", "3s"},
                                    "trap 'echo told >> told' TERM; (trap '' TERM; " + beat + ") & " + beat));
  ASSERT_TRUE(beats());
  process.send(SIGKILL);
  EXPECT_EQ(process.finish().exit_code, 128 + SIGKILL);
  expect_no_beat_once_another_has_the_lock();
  EXPECT_FALSE(file("told").empty()) << "it was asked first";
}

TEST_F(Run, AKilledJobTakesTheCommandWithIt) {
  CommandProcess process(url, shell({"--key", "k", "--ttl", "6s", "--kill-after", "300ms"}, "trap '' TERM; " + beat));
  ASSERT_TRUE(beats());
  kill(-process.pid(), SIGKILL);  // as `kill -9 %1`
  EXPECT_EQ(process.finish().exit_code, 128 + SIGKILL);
  expect_no_beat_once_another_has_the_lock();
}

TEST_F(Run, AKilledGuardianTakesTheCommandWithIt) {
  CommandProcess process(url, shell({"--key", "k"}, "echo $PPID > guardian; (" + beat + ") & " + beat));
  ASSERT_TRUE(beats());
  ASSERT_TRUE(comes("guardian"));
  kill(std::stoi(file("guardian")), SIGKILL);
  const auto outcome = process.finish();
  EXPECT_EQ(outcome.exit_code, 70);
  EXPECT_THAT(outcome.err, HasSubstr("guardian"));
  EXPECT_FALSE(is_locked("k"));
  expect_no_beat_once_another_has_the_lock();
}

TEST_F(Run, ASyncguardKilledWhileItWaitsLeavesNoGuardian) {
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
