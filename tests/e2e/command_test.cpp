// The syncguard command, by running it.

#include "e2e/command_process.hpp"

#include <syncguard/lock_info.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Command : ::testing::Test {
  TemporaryFolder folder;
  std::string url = "sqlite:" + (folder.path() / "locks.db").string();

  [[nodiscard]] Outcome run(std::vector<std::string> arguments) const {
    return CommandProcess(url, std::move(arguments)).finish();
  }
};

TEST_F(Command, AcquiresExtendsAndReleasesById) {
  const auto acquired = run({"--json", "acquire", "deploy", "--ttl", "1m"});
  EXPECT_EQ(acquired.exit_code, 0) << acquired.err;
  const auto object = acquired.json();
  EXPECT_EQ(object.at("ok"), true);
  EXPECT_EQ(object.at("fence"), "000000000000001");
  EXPECT_TRUE(object.at("expiresAtMs").is_number_integer());
  EXPECT_EQ(object.size(), 4U);
  const auto id = object.at("lockId").get<std::string>();
  EXPECT_TRUE(LockId::is_valid(id));

  const auto refused = run({"acquire", "deploy", "--json"});
  EXPECT_EQ(refused.exit_code, 75);
  EXPECT_EQ(refused.json(), (nlohmann::json{{"ok", false}, {"reason", "locked"}}));

  const auto extended = run({"--json", "extend", id, "--ttl", "1h30m"});
  EXPECT_EQ(extended.exit_code, 0);
  EXPECT_GT(extended.json().at("expiresAtMs"), object.at("expiresAtMs"));

  const auto released = run({"--json", "release", id});
  EXPECT_EQ(released.exit_code, 0);
  EXPECT_EQ(released.json(), (nlohmann::json{{"ok", true}}));

  const auto again = run({"--json", "release", id});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_EQ(again.json(), (nlohmann::json{{"ok", false}}));
  EXPECT_EQ(run({"extend", id}).exit_code, 1);
}

TEST_F(Command, SaysWhatIsKnownAboutALock) {
  EXPECT_EQ(run({"--json", "status", "deploy"}).json(), (nlohmann::json{{"locked", false}}));
  EXPECT_EQ(run({"status", "deploy"}).exit_code, 1);
  EXPECT_EQ(run({"is-locked", "deploy"}).exit_code, 1);
  const auto id = run({"--json", "acquire", "deploy"}).json().at("lockId").get<std::string>();
  EXPECT_EQ(run({"is-locked", "deploy"}).exit_code, 0);
  EXPECT_EQ(run({"--json", "is-locked", "deploy"}).json(), (nlohmann::json{{"locked", true}}));

  const auto by_key = run({"--json", "status", "deploy"});
  EXPECT_EQ(by_key.exit_code, 0);
  EXPECT_EQ(by_key.json().at("keyHash"), hash_key("deploy"));
  EXPECT_EQ(by_key.json().at("lockIdHash"), hash_key(id));
  EXPECT_EQ(by_key.json().size(), 6U);
  EXPECT_EQ(run({"--json", "status", "--id", id}).json(), by_key.json());
  const auto raw = run({"--json", "status", "deploy", "--raw"}).json();
  EXPECT_EQ(raw.at("key"), "deploy");
  EXPECT_EQ(raw.at("lockId"), id);
  const auto text = run({"status", "deploy"});
  EXPECT_THAT(text.out, HasSubstr("locked since"));
  EXPECT_EQ(text.out.find(id), std::string::npos);
}

TEST_F(Command, PrintsTheIdAloneForShellScripts) {
  const auto acquired = run({"acquire", "deploy"});
  EXPECT_TRUE(LockId::is_valid(acquired.out.substr(0, acquired.out.find('\n')))) << acquired.out;
  EXPECT_EQ(acquired.out.size(), 23U);
  EXPECT_THAT(acquired.err, HasSubstr("000000000000001"));
  const auto quiet = run({"-q", "acquire", "other"});
  EXPECT_EQ(quiet.out.size(), 23U);
  EXPECT_THAT(quiet.err, IsEmpty());
}

TEST_F(Command, WaitsForAsLongAsItIsTold) {
  const auto id = run({"--json", "acquire", "deploy"}).json().at("lockId").get<std::string>();
  const auto start_time = std::chrono::steady_clock::now();
  const auto timed_out = run({"--json", "acquire", "deploy", "--wait", "300ms"});
  EXPECT_EQ(timed_out.exit_code, 75);
  EXPECT_GE(std::chrono::steady_clock::now() - start_time, 300ms);

  CommandProcess waiting(url, {"acquire", "deploy", "--wait", "1m", "-q"});
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(run({"-q", "release", id}).exit_code, 0);
  EXPECT_EQ(waiting.finish().exit_code, 0);
}

TEST_F(Command, IsInterruptedBySignalsAndLeavesNoLock) {
  const auto id = run({"--json", "acquire", "deploy"}).json().at("lockId").get<std::string>();
  for (const int signal : {SIGINT, SIGTERM}) {
    CommandProcess waiting(url, {"acquire", "deploy", "--wait", "1m"});
    std::this_thread::sleep_for(200ms);
    waiting.send(signal);
    EXPECT_EQ(waiting.finish().exit_code, 130);
  }
  EXPECT_EQ(run({"release", id}).exit_code, 0);
  EXPECT_EQ(run({"is-locked", "deploy"}).exit_code, 1);
}

TEST_F(Command, SaysWhatIsWrongWithItsArguments) {
  const auto expect_usage_error = [&](std::vector<std::string> arguments, const std::string& about) {
    const auto outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err + outcome.out, HasSubstr(about));
  };
  expect_usage_error({}, "A command is required");
  expect_usage_error({"aquire", "deploy"}, "aquire");
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

TEST_F(Command, TellsItsVersionAndBackends) {
  EXPECT_THAT(run({"--version"}).out, HasSubstr("syncguard "));
  EXPECT_EQ(run({"--version"}).exit_code, 0);
  const auto help = run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* word : {"acquire", "release", "extend", "status", "is-locked", "backends", "75", "SYNCGUARD_URL"}) {
    EXPECT_THAT(help.out, HasSubstr(word));
  }
  EXPECT_THAT(run({"backends"}).out, HasSubstr("sqlite:"));
  EXPECT_THAT(run({"backends", "--json"}).json().at("backends"), ::testing::Contains("memory"));
}

TEST_F(Command, ReportsTheBackendsErrorsByExitCode) {
  std::ofstream(folder.path() / "file") << "in the way";
  const auto unavailable =
      run({"--json", "--url", "sqlite:" + (folder.path() / "file" / "x.db").string(), "is-locked", "k"});
  EXPECT_EQ(unavailable.exit_code, 69);
  EXPECT_EQ(unavailable.json().at("error").at("code"), "ServiceUnavailable");
  EXPECT_FALSE(unavailable.json().at("error").at("message").get<std::string>().empty());
}

}  // namespace
}  // namespace syncguard::testing
