// Runs the syncguard command.

#include "e2e/command_process.hpp"
#if SYNCGUARD_HAS_REDIS
#include "servers/fake_redis.hpp"
#endif
#include "support/needs_root.hpp"

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
  // A long timeout, because the machine also runs other tests.
  std::string url = "sqlite:" + (folder.path() / "locks.db").string() + "?operation_timeout=20s";

  [[nodiscard]] Outcome run(std::vector<std::string> arguments) const {
    return CommandProcess(url, std::move(arguments)).finish();
  }
  [[nodiscard]] Outcome in_shell(const std::string& line) const {
    return CommandProcess(url, {"-c", line}, "/bin/bash").finish();
  }
};

TEST_F(Command, ReportsInvalidArguments) {
  const auto expect_usage_error = [&](std::vector<std::string> arguments, const std::string& about) {
    const auto outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err + outcome.out, HasSubstr(about));
  };
  expect_usage_error({}, "A command is required");
  expect_usage_error({"aquire", "deploy"}, "unknown command 'aquire'");
  expect_usage_error({"--url", "memory:", "runn", "--", "true"}, "unknown command 'runn'");
  expect_usage_error({"acquire"}, "KEY");
  expect_usage_error({"acquire", "deploy", "--tll", "5s"}, "--tll");
  expect_usage_error({"acquire", "deploy", "--ttl", "5 parsecs"}, "--ttl");
  expect_usage_error({"acquire", "deploy", "--ttl", "10"}, "'10' has no unit: write 10s");
  expect_usage_error({"acquire", "deploy", "--ttl", "10"}, "ms, s, m, h and d");
  expect_usage_error({"acquire", "deploy", "--ttl", "0s"}, "ttl must be");
  expect_usage_error({"status"}, "KEY or --id");
  expect_usage_error({"status", "deploy", "--id", "x"}, "--id");
  expect_usage_error({"release", "short"}, "22 characters");
  expect_usage_error({"acquire", ""}, "must not be empty");
  expect_usage_error({"--url", "reddis:", "is-locked", "deploy"}, "'reddis:'");
  expect_usage_error({"--url", "sqlite:x?colour=red", "is-locked", "deploy"}, "'colour'");
  EXPECT_EQ(run({"acquire", "deploy", "--ttl", "1d"}).exit_code, 0);
  EXPECT_EQ(run({"--json", "release", "short"}).json().at("error").at("code"), "InvalidArgument");
  EXPECT_EQ(run({"--json", "aquire"}).json().at("error").at("code"), "InvalidArgument");
}

TEST_F(Command, DoesNotRepeatMisplacedPassword) {
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
  EXPECT_THAT(run({"--ulr", store, "is-locked", "k"}).err, HasSubstr("unknown option '--ulr'"));
}

// A value after a misspelled option, or one too many, may be a password that is no URL.
TEST_F(Command, UsageErrorsNameOptionsWithoutTheirValues) {
  struct Case {
    std::vector<std::string> arguments;
    const char* message;
  };
  for (const auto& [arguments, message] :
       {Case{{"--urll", "password=hunter2", "status", "k"}, "unknown option '--urll'"},
        {{"--urll=hunter2", "status", "k"}, "unknown option '--urll'"},
        {{"-p", "hunter2", "status", "k"}, "unknown option '-p'"},
        {{"-qphunter2", "status", "k"}, "unknown option '-p'"},
        {{"status", "k", "-phunter2"}, "unknown option '-p'"},
        {{"status", "--password=hunter2", "k"}, "unknown option '--password'"},
        {{"status", "--password", "hunter2", "k"}, "unknown option '--password'"},
        {{"run", "--password", "hunter2", "--", "true"}, "unknown option '--password'"},
        {{"status", "k", "hunter2"}, "too many arguments"},
        {{"hunter2"}, "unknown command\n"}}) {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << ::testing::PrintToString(arguments);
    EXPECT_THAT(outcome.err, HasSubstr(message)) << ::testing::PrintToString(arguments);
    EXPECT_THAT(outcome.err, Not(HasSubstr("hunter2"))) << ::testing::PrintToString(arguments);
  }
}

// A store inside the process of the command cannot exclude other processes.
TEST_F(Command, RejectsMemoryStore) {
  url = "memory:";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", "--key", "k", "--", "true"}, {"acquire", "k"}, {"is-locked", "k"}}) {
    const auto outcome = run(command);
    EXPECT_EQ(outcome.exit_code, 2) << command[0];
    EXPECT_THAT(outcome.err, HasSubstr("sqlite:PATH")) << command[0];
  }
  EXPECT_EQ(run({"doctor"}).exit_code, 0);
}

TEST_F(Command, MessagesNameCommandAndKey) {
  const auto first = run({"acquire", "deploy"});
  EXPECT_THAT(first.err, HasSubstr("syncguard: acquire 'deploy': acquired with fence"));
  EXPECT_EQ(run({"acquire", "deploy"}).err, "syncguard: acquire 'deploy': locked by another holder\n");
  EXPECT_EQ(run({"run", "--key", "deploy", "--no-wait", "true"}).err,
            "syncguard: run 'deploy': locked by another holder\n");
  EXPECT_EQ(run({"is-locked", "deploy"}).err, "syncguard: is-locked 'deploy': locked\n");
  EXPECT_THAT(run({"acquire"}).err, HasSubstr("syncguard: acquire: KEY is required"));
  EXPECT_THAT(run({"run", "no-such-program"}).err, HasSubstr("syncguard: run 'no-such-program': no-such-program: No"));
  url = "sqlite:/dev/null/x";
  EXPECT_THAT(run({"status", "deploy"}).err, HasSubstr("syncguard: status 'deploy': "));
}

TEST_F(Command, DebugShowsEachOperation) {
  const std::string line = SYNCGUARD_COMMAND " -q acquire key";
  EXPECT_EQ(in_shell(line).err, "");
  EXPECT_EQ(in_shell("SYNCGUARD_DEBUG=0 " SYNCGUARD_COMMAND " is-locked key").err,
            "syncguard: is-locked 'key': locked\n");
  for (const std::string asked : {"SYNCGUARD_DEBUG=1 " SYNCGUARD_COMMAND " ", SYNCGUARD_COMMAND " -v "}) {
    EXPECT_THAT(in_shell(asked + "acquire key").err, HasSubstr("syncguard: acquire: fail (locked) in ")) << asked;
    EXPECT_THAT(in_shell(asked + "is-locked key").err, HasSubstr("syncguard: isLocked: ok (locked) in ")) << asked;
    EXPECT_EQ(in_shell(asked + "--json is-locked key").json(), (nlohmann::json{{"locked", true}})) << asked;
  }
}

#if SYNCGUARD_HAS_REDIS
TEST_F(Command, ReportsCauseOfError) {
  const FakeRedis server({.answer = "-ODD something of the kind\r\n"});
  url = server.url();
  // The key "e" is part of many words. It must not be removed from them.
  const auto outcome = run({"acquire", "e"});
  EXPECT_EQ(outcome.exit_code, 70);
  EXPECT_THAT(outcome.err, HasSubstr("ODD something of the kind"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("...")));
  EXPECT_THAT(run({"--json", "acquire", "e"}).json().at("error").at("message").get<std::string>(),
              HasSubstr("ODD something of the kind"));
}

TEST_F(Command, NeverShowsLockIdFromServerMessage) {
  const std::string id = "0123456789ABCDEFabcdef";
  const FakeRedis server({.answer = "-ODD about " + id + " and x" + id + "\r\n"});
  url = server.url();
  const auto outcome = run({"-v", "release", id});
  EXPECT_EQ(outcome.exit_code, 70);
  EXPECT_THAT(outcome.err, HasSubstr("ODD about ... and x" + id)) << "only whole words may be replaced";
}
#endif

#if SYNCGUARD_HAS_POSTGRES
TEST_F(Command, ShowsNoPartOfUnescapedPassword) {
  for (const std::string store : {"postgres://me:hun@ter2@127.0.0.1/db", "postgres://me:hun/ter2@127.0.0.1/db",
                                  "postgres://me:hun%ter2@127.0.0.1/db", "postgres://me:hun?ter2=x@127.0.0.1/db",
                                  "postgres://me:hun#ter2@127.0.0.1:1/db", "postgres://me:1/ter2@127.0.0.1/db"}) {
    url = store;
    const auto outcome = run({"-v", "is-locked", "k"});
    EXPECT_NE(outcome.exit_code, 0) << store;
    for (const char* piece : {"hun", "ter2"}) {
      EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr(piece))) << store;
    }
  }
}
#endif

#if SYNCGUARD_HAS_FIRESTORE
// gRPC logs an error if it cannot parse the credentials file.
TEST_F(Command, PrintsOnlyJsonIfGrpcFails) {
  std::ofstream(folder.path() / "credentials.json") << R"({"type":"service_account"})";
  const auto outcome = in_shell("unset FIRESTORE_EMULATOR_HOST GRPC_VERBOSITY; GOOGLE_APPLICATION_CREDENTIALS=" +
                                (folder.path() / "credentials.json").string() +
                                " " SYNCGUARD_COMMAND " --json --url firestore://project is-locked key");
  EXPECT_TRUE(outcome.json().contains("error")) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}
#endif

// ---------------------------------------------------------------------------------------------------------------------
// Keys and messages that contain control characters

TEST_F(Command, EscapesTerminalControlSequences) {
  const std::string key =
      "a\x1b[31mb\xc2\x9b"
      "c\xe2\x80\xae"
      "d\x7f\ne\xc3\xbc";
  const std::string shown = "a\\x1b[31mb\\u009bc\\u202ed\\x7f\\ne\xc3\xbc";
  const auto acquired = run({"acquire", key});
  EXPECT_EQ(acquired.exit_code, 0);
  EXPECT_THAT(acquired.err, HasSubstr(shown));
  const auto status = run({"status", "--raw", key});
  EXPECT_THAT(status.out, HasSubstr("\nkey " + shown + "\nid "));
  const auto json = run({"--json", "status", "--raw", key});
  EXPECT_EQ(json.json().at("key").get<std::string>(), key);
  const auto invalid = run({"is-locked", std::string("bad\xff\x1b]0;title\x07")});
  EXPECT_THAT(invalid.err, HasSubstr("bad\\xff\\x1b]0;title\\x07"));
  const auto unknown = run({"\x1b[2Jclear"});
  for (const auto& outcome : {acquired, status, json, invalid, unknown, run({"-v", "is-locked", key})}) {
    const auto all = outcome.out + outcome.err;
    EXPECT_THAT(all, Not(HasSubstr("\x1b")));
    EXPECT_THAT(all, Not(HasSubstr("\x7f")));
    EXPECT_THAT(all, Not(HasSubstr("\xc2\x9b")));
    EXPECT_THAT(all, Not(HasSubstr("\xe2\x80\xae")));
  }
}

#if SYNCGUARD_HAS_REDIS
TEST_F(Command, EscapesServerMessages) {
  const FakeRedis server({.answer = "-ODD \x1b[2J\xc2\x9b"
                                    "3\xff\r\n"});
  url = server.url();
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"acquire", "k"}, {"-v", "acquire", "k"}, {"doctor"}, {"--json", "doctor"}}) {
    const auto outcome = run(command);
    const auto all = outcome.out + outcome.err;
    EXPECT_THAT(all, Not(HasSubstr("\x1b"))) << command[0];
    EXPECT_THAT(all, Not(HasSubstr("\xc2\x9b"))) << command[0];
    EXPECT_THAT(all, Not(HasSubstr("\xff"))) << command[0];
  }
  EXPECT_THAT(run({"acquire", "k"}).err, HasSubstr("ODD \\x1b[2J\\u009b3\\xff"));
}
#endif

// ---------------------------------------------------------------------------------------------------------------------
// Lock ids

// Unlike arguments, standard input cannot be read by other users of the host.
TEST_F(Command, ReadsLockIdsFromStandardInput) {
  const std::string id = run({"-q", "acquire", "key"}).out.substr(0, 22);
  const auto with_input = [&](const std::string& text, const std::string& command) {
    // One id in 64 begins with a dash and would be an option of printf.
    return in_shell("printf %b '" + text + "' | " SYNCGUARD_COMMAND " " + command);
  };
  EXPECT_EQ(with_input(id + "\\n", "extend - --ttl 1m").exit_code, 0);
  EXPECT_EQ(with_input(id + "\\r\\n", "status --id -").exit_code, 0);
  EXPECT_EQ(with_input(id, "release -").exit_code, 0) << "without a newline";
  EXPECT_EQ(with_input(id + "\\n", "release -").exit_code, 1);
  EXPECT_EQ(with_input("", "release -").exit_code, 2);
  EXPECT_EQ(with_input("short", "release -").exit_code, 2);
  EXPECT_EQ(in_shell("yes | tr -d '\\n' | " SYNCGUARD_COMMAND " release -").exit_code, 2);
  EXPECT_EQ(in_shell(SYNCGUARD_COMMAND " release - <&-").exit_code, 2);
}

TEST_F(Command, AcceptsLockIdsThatLookLikeOptions) {
  for (const std::string id : {"-AAAAAAAAAAAAAAAAAAAAA", "--AAAAAAAAAAAAAAAAAAAA", "-v-q-json-url-id-raw--"}) {
    EXPECT_EQ(run({"release", id}).exit_code, 1) << id;
    EXPECT_EQ(run({"extend", id, "--ttl", "5s", "--json"}).json(), (nlohmann::json{{"ok", false}})) << id;
    EXPECT_EQ(run({"status", "--id", id, "--raw"}).exit_code, 1) << id;
    EXPECT_EQ(run({"release", "--", id}).exit_code, 1) << id;
  }
  EXPECT_EQ(run({"acquire", "--", "-a-key"}).exit_code, 0);
}

// An unset variable in a script must not select another key or another store.
TEST_F(Command, RejectsEmptyLockId) {
  const std::vector<std::vector<std::string>> commands = {{"acquire", "key", "--url", ""},
                                                          {"--url=", "run", "--key", "key", "true"},
                                                          {"run", "--key", "", "true"},
                                                          {"run", "--key", "--", "true"},
                                                          {"run", "--wait", "--", "true"},
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

// A caller that does not get the id could not release the lock.
TEST_F(Command, ReleasesLockIfItsIdCannotBeWritten) {
  for (const std::string place : {"> /dev/full", ">&-", "| true"}) {
    const auto outcome = in_shell("set -o pipefail; sleep 0.1 | " SYNCGUARD_COMMAND " acquire key " + place);
    EXPECT_EQ(outcome.exit_code, 70) << place;
    EXPECT_THAT(outcome.err, HasSubstr("cannot write")) << place;
    EXPECT_EQ(run({"is-locked", "key"}).exit_code, 1) << place;
    EXPECT_EQ(in_shell("set -o pipefail; sleep 0.1 | " SYNCGUARD_COMMAND " acquire key --json " + place).exit_code, 70);
    EXPECT_EQ(run({"is-locked", "key"}).exit_code, 1) << place;
  }
}

// The reader of stderr has ended, as after `2>&1 | head`.
TEST_F(Command, KeepsExitCodeIfOutputPipeIsClosed) {
  const auto exit_code = [&](const std::string& command) {
    return in_shell("exec 3> >(:); wait $!; " SYNCGUARD_COMMAND " " + command + " 2>&3; echo $?").out;
  };
  EXPECT_EQ(exit_code("-v run --key k -- sh -c 'exit 7'"), "7\n");
  EXPECT_EQ(exit_code("run --json --key k -- sh -c 'exit 7'"), "7\n");
  EXPECT_EQ(exit_code("acquire k > /dev/null"), "0\n");
  EXPECT_EQ(exit_code("acquire k"), "75\n");
  EXPECT_EQ(exit_code("release short"), "2\n");
  EXPECT_EQ(exit_code("no-such-command"), "2\n");
  EXPECT_EQ(in_shell(SYNCGUARD_COMMAND " run --key p -- sh -c 'kill -PIPE $$; echo alive'").exit_code, 128 + SIGPIPE)
      << "the command must get the default action of SIGPIPE";
}

// As in `syncguard doctor | head -1`.
TEST_F(Command, KeepsExitCodeIfReaderOfResultHasEnded) {
  const auto exit_code = [&](const std::string& command) {
    const auto outcome = in_shell("exec 3> >(:); wait $!; " SYNCGUARD_COMMAND " " + command + " >&3; echo $?");
    EXPECT_THAT(outcome.err, Not(HasSubstr("cannot write"))) << command;
    return outcome.out;
  };
  EXPECT_EQ(exit_code("setup"), "0\n");
  EXPECT_EQ(exit_code("doctor"), "0\n");
  EXPECT_EQ(exit_code("--json doctor"), "0\n");
  EXPECT_EQ(exit_code("status k"), "1\n");
  EXPECT_EQ(exit_code("--json is-locked k"), "1\n");
  EXPECT_EQ(exit_code("--json no-such-command"), "2\n");
}

TEST_F(Command, ReportsResultThatCannotBeWritten) {
  for (const std::string command : {"status k", "--json status k", "--json is-locked k", "backends"}) {
    const auto outcome = in_shell(SYNCGUARD_COMMAND " " + command + " > /dev/full");
    EXPECT_EQ(outcome.exit_code, 70) << command;
    EXPECT_THAT(outcome.err, HasSubstr("No space left on device")) << command;
  }
}

TEST_F(Command, RunsWithClosedStandardStreams) {
  EXPECT_EQ(in_shell(SYNCGUARD_COMMAND " -v run --key key -- true <&- >&- 2>&-").exit_code, 0);
  const auto outcome = in_shell(SYNCGUARD_COMMAND " -q run --key key -- sh -c 'readlink /proc/$$/fd/[01] >&2' <&- >&-");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "") << "standard streams that were closed must be closed in the command";
}

// The kernel does not let the signal end the first process of a container.
TEST_F(Command, FirstProcessOfContainerReturnsNumberOfSignal) {
  SYNCGUARD_NEEDS_ROOT();
  CommandProcess container(url, {"unshare", "--pid", "--fork", SYNCGUARD_COMMAND, "watch", "k"}, "/usr/bin/env");
  ASSERT_TRUE(eventually([&] { return !container.out().empty(); }));
  const auto process = std::to_string(container.pid());
  kill(std::stoi(text_of_file("/proc/" + process + "/task/" + process + "/children")), SIGTERM);
  EXPECT_EQ(container.finish().exit_code, 128 + SIGTERM);
}

TEST_F(Command, PrintsVersionAndBackends) {
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
