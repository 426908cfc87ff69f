// The syncguard command, by running it.

#include "e2e/command_process.hpp"
#if SYNCGUARD_HAS_REDIS
#include "servers/fake_redis.hpp"
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Command : ::testing::Test {
  TemporaryFolder folder;
  // What is slow here is the machine, which runs other tests beside this one.
  std::string url = "sqlite:" + (folder.path() / "locks.db").string() + "?operation_timeout=20s";

  [[nodiscard]] Outcome run(std::vector<std::string> arguments) const {
    return CommandProcess(url, std::move(arguments)).finish();
  }
  [[nodiscard]] Outcome in_shell(const std::string& line) const {
    return CommandProcess(url, {"-c", line}, "/bin/bash").finish();
  }
};

TEST_F(Command, SaysWhatIsWrongWithItsArguments) {
  const auto expect_usage_error = [&](std::vector<std::string> arguments, const std::string& about) {
    const auto outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err + outcome.out, HasSubstr(about));
  };
  expect_usage_error({}, "A command is required");
  expect_usage_error({"aquire", "deploy"}, "There is no command 'aquire'");
  expect_usage_error({"--url", "memory:", "runn", "--", "true"}, "There is no command 'runn'");
  expect_usage_error({"acquire"}, "KEY");
  expect_usage_error({"acquire", "deploy", "--tll", "5s"}, "--tll");
  expect_usage_error({"acquire", "deploy", "--ttl", "5 parsecs"}, "--ttl");
  expect_usage_error({"acquire", "deploy", "--ttl", "0s"}, "ttl must be");
  expect_usage_error({"status"}, "KEY or --id");
  expect_usage_error({"status", "deploy", "--id", "x"}, "--id");
  expect_usage_error({"release", "short"}, "22 characters");
  expect_usage_error({"acquire", ""}, "must not be empty");
  expect_usage_error({"--url", "reddis:", "is-locked", "deploy"}, "'reddis:'");
  expect_usage_error({"--url", "sqlite:x?colour=red", "is-locked", "deploy"}, "'colour'");
  EXPECT_EQ(run({"--json", "release", "short"}).json().at("error").at("code"), "InvalidArgument");
  EXPECT_EQ(run({"--json", "aquire"}).json().at("error").at("code"), "InvalidArgument");
}

TEST_F(Command, DoesNotRepeatAPasswordThatStandsInTheWrongPlace) {
  const std::string store = "redis://user:very secret@host";
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--ulr", store, "run", "--", "true"},
                                                    {"--ulr=" + store, "is-locked", "k"},
                                                    {"is-locked", "k", "--ulr", store},
                                                    {"is-locked", "k", "-u" + store},
                                                    {"is-locked", "k", "-q" + store},
                                                    {"run", "--ulr=" + store, "--", "true"},
                                                    {"run", "--lost-exit-code", store, "--", "true"},
                                                    {"run", "--lost-exit-code=" + store, "--", "true"},
                                                    {"run", "--json=" + store, "--", "true"},
                                                    {"acquire", "k", "--ttl", store},
                                                    {"release", store},
                                                    {store}}) {
    for (const bool json : {false, true}) {
      auto words = arguments;
      if (json) words.insert(words.begin(), "--json");
      const auto outcome = run(words);
      EXPECT_EQ(outcome.exit_code, 2) << ::testing::PrintToString(words);
      EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("secret"))) << ::testing::PrintToString(words);
    }
  }
  EXPECT_THAT(run({"--ulr", store, "is-locked", "k"}).err, HasSubstr("There is no command 'redis://...'"));
}

#if SYNCGUARD_HAS_REDIS
TEST_F(Command, TellsTheCauseOfAnErrorToThoseWhoAsk) {
  const FakeRedis server({.answer = "-ODD something about my-secret-key\r\n"});
  url = server.url();
  const auto quiet = run({"acquire", "my-secret-key"});
  EXPECT_EQ(quiet.exit_code, 70);
  EXPECT_THAT(quiet.err, Not(HasSubstr("ODD")));
  const auto verbose = run({"-v", "acquire", "my-secret-key"});
  EXPECT_THAT(verbose.err, HasSubstr("ODD something about"));
  EXPECT_THAT(verbose.err, Not(HasSubstr("my-secret-key")));
}
#endif

TEST_F(Command, TakesLockIdsThatLookLikeOptions) {
  for (const std::string id : {"-AAAAAAAAAAAAAAAAAAAAA", "--AAAAAAAAAAAAAAAAAAAA", "-v-q-json-url-id-raw--"}) {
    EXPECT_EQ(run({"release", id}).exit_code, 1) << id;
    EXPECT_EQ(run({"extend", id, "--ttl", "5s", "--json"}).json(), (nlohmann::json{{"ok", false}})) << id;
    EXPECT_EQ(run({"status", "--id", id, "--raw"}).exit_code, 1) << id;
    EXPECT_EQ(run({"release", "--", id}).exit_code, 1) << id;
  }
  EXPECT_EQ(run({"acquire", "--", "-a-key"}).exit_code, 0);
}

// What an unset variable of a script leaves behind must not lock something else, or somewhere else.
TEST_F(Command, TakesNothingForAnAnswer) {
  const std::vector<std::vector<std::string>> commands = {{"acquire", "key", "--url", ""},
                                                          {"--url=", "run", "--key", "key", "true"},
                                                          {"run", "--key", "", "true"},
                                                          {"run", "--key=", "--", "true"},
                                                          {"acquire", ""},
                                                          {"is-locked", ""},
                                                          {"status", ""},
                                                          {"status", "--id", ""},
                                                          {"release", ""}};
  for (const auto& arguments : commands) {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << ::testing::PrintToString(arguments);
    EXPECT_NE(outcome.err, "") << ::testing::PrintToString(arguments);
  }
  const auto outcome = CommandProcess("", {"acquire", "key"}).finish();
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("SYNCGUARD_URL, is empty"));
}

// Who cannot be told the id could never release the lock.
TEST_F(Command, GivesALockBackWhoseIdCannotBeWritten) {
  for (const std::string place : {"> /dev/full", ">&-", "| true"}) {
    const auto outcome = in_shell("set -o pipefail; sleep 0.1 | " SYNCGUARD_COMMAND " acquire key " + place);
    EXPECT_EQ(outcome.exit_code, 70) << place;
    EXPECT_THAT(outcome.err, HasSubstr("could not be written")) << place;
    EXPECT_EQ(run({"is-locked", "key"}).exit_code, 1) << place;
    EXPECT_EQ(in_shell("set -o pipefail; sleep 0.1 | " SYNCGUARD_COMMAND " acquire key --json " + place).exit_code, 70);
    EXPECT_EQ(run({"is-locked", "key"}).exit_code, 1) << place;
  }
}

TEST_F(Command, RunsWhereTheStandardFilesAreClosed) {
  EXPECT_EQ(in_shell(SYNCGUARD_COMMAND " -v run --key key -- true <&- >&- 2>&-").exit_code, 0);
  const auto outcome = in_shell(SYNCGUARD_COMMAND " -q run --key key -- sh -c 'readlink /proc/$$/fd/[01] >&2' <&- >&-");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "") << "its files are closed as ours were";
}

TEST_F(Command, TellsItsVersionAndBackends) {
  EXPECT_THAT(run({"--version"}).out, HasSubstr("syncguard "));
  EXPECT_EQ(run({"--version"}).exit_code, 0);
  const auto help = run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* word : {"acquire", "release", "extend", "status", "is-locked", "backends", "75", "SYNCGUARD_URL"}) {
    EXPECT_THAT(help.out, HasSubstr(word));
  }
  for (const char* command : {"run", "acquire", "status"}) {
    const auto its_help = run({command, "--help"}).out;
    for (const char* word : {"--url", "75", "1h30m"}) EXPECT_THAT(its_help, HasSubstr(word)) << command;
  }
  EXPECT_THAT(run({"backends"}).out, HasSubstr("sqlite:"));
  EXPECT_THAT(run({"backends", "--json"}).json().at("backends"), ::testing::Contains("memory"));
}

}  // namespace
}  // namespace syncguard::testing
