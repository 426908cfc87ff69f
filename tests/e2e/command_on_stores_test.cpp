// Every command, exit code and form of JSON, on every store.

#include "e2e/command_process.hpp"
#include "e2e/stores.hpp"

#include <syncguard/lock_info.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> fields_of(const json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

struct CommandOn : ::testing::TestWithParam<StoreKind> {
  // Tests share a store, and each has keys of its own.
  std::string key = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  StoreForCommands& store = shared(GetParam());
  std::string url = store.url();

  CommandOn() { key = key.substr(0, key.find('/')); }

  static StoreForCommands& shared(const StoreKind& kind) {
    static std::map<std::string, std::unique_ptr<StoreForCommands>> stores;
    auto& store = stores[kind.name];
    if (!store) store = kind.start();
    return *store;
  }
  [[nodiscard]] Outcome run(std::vector<std::string> arguments) const {
    return CommandProcess(url, std::move(arguments)).finish();
  }
  // It needs -v, to say so.
  static bool begins_to_wait(const CommandProcess& process) {
    return eventually([&] { return process.err().find("locked by somebody else: waiting") != std::string::npos; });
  }
  [[nodiscard]] std::string acquired(const std::string& name) const {
    return run({"--json", "acquire", name, "--ttl", "10m"}).json().at("lockId").get<std::string>();
  }
};

TEST_P(CommandOn, AcquireExtendAndReleaseById) {
  const auto first = run({"--json", "acquire", key, "--ttl", "10m"});
  EXPECT_EQ(first.exit_code, 0) << first.out << first.err;
  const auto object = first.json();
  EXPECT_THAT(fields_of(object), ::testing::UnorderedElementsAre("ok", "lockId", "fence", "expiresAtMs"));
  EXPECT_EQ(object.at("ok"), true);
  EXPECT_EQ(object.at("fence"), "000000000000001");
  const auto id = object.at("lockId").get<std::string>();
  EXPECT_TRUE(LockId::is_valid(id));

  const auto refused = run({"acquire", key, "--json"});
  EXPECT_EQ(refused.exit_code, 75);
  EXPECT_EQ(refused.json(), (json{{"ok", false}, {"reason", "locked"}}));
  const auto start = steady_clock::now();
  const auto timed_out = run({"--json", "acquire", key, "--wait", "300ms"});
  EXPECT_EQ(timed_out.exit_code, 75);
  EXPECT_EQ(timed_out.json(), (json{{"ok", false}, {"reason", "locked"}}));
  EXPECT_GE(steady_clock::now() - start, 300ms);

  const auto extended = run({"--json", "extend", id, "--ttl", "1h30m"});
  EXPECT_EQ(extended.exit_code, 0);
  EXPECT_THAT(fields_of(extended.json()), ::testing::UnorderedElementsAre("ok", "expiresAtMs"));
  EXPECT_GT(extended.json().at("expiresAtMs"), object.at("expiresAtMs"));

  const auto released = run({"--json", "release", id});
  EXPECT_EQ(released.exit_code, 0);
  EXPECT_EQ(released.json(), (json{{"ok", true}}));
  for (const auto* command : {"release", "extend"}) {
    const auto again = run({"--json", command, id});
    EXPECT_EQ(again.exit_code, 1) << command;
    EXPECT_EQ(again.json(), (json{{"ok", false}})) << command;
  }
}

TEST_P(CommandOn, PrintTheIdAloneForShellScripts) {
  const auto first = run({"acquire", key});
  ASSERT_EQ(first.out.size(), 23U) << first.err;
  const auto id = first.out.substr(0, 22);
  EXPECT_TRUE(LockId::is_valid(id));
  EXPECT_THAT(first.err, HasSubstr("000000000000001"));
  EXPECT_THAT(run({"extend", id}).out, IsEmpty());
  const auto released = run({"-q", "release", id});
  EXPECT_THAT(released.out + released.err, IsEmpty());
}

TEST_P(CommandOn, SayWhatIsKnownAboutALock) {
  EXPECT_EQ(run({"--json", "status", key}).json(), (json{{"locked", false}}));
  EXPECT_EQ(run({"status", key}).exit_code, 1);
  EXPECT_EQ(run({"is-locked", key}).exit_code, 1);
  EXPECT_EQ(run({"--json", "is-locked", key}).json(), (json{{"locked", false}}));
  const auto id = acquired(key);
  EXPECT_EQ(run({"is-locked", key}).exit_code, 0);
  EXPECT_EQ(run({"--json", "is-locked", key}).json(), (json{{"locked", true}}));

  const auto by_key = run({"--json", "status", key});
  EXPECT_EQ(by_key.exit_code, 0);
  EXPECT_THAT(fields_of(by_key.json()), ::testing::UnorderedElementsAre("locked", "keyHash", "lockIdHash", "fence",
                                                                        "expiresAtMs", "acquiredAtMs"));
  EXPECT_EQ(by_key.json().at("keyHash"), hash_key(key));
  EXPECT_EQ(by_key.json().at("lockIdHash"), hash_key(id));
  EXPECT_EQ(run({"--json", "status", "--id", id}).json(), by_key.json());
  const auto raw = run({"--json", "status", key, "--raw"}).json();
  EXPECT_EQ(raw.at("key"), key);
  EXPECT_EQ(raw.at("lockId"), id);
  const auto text = run({"status", key});
  EXPECT_THAT(text.out, HasSubstr("locked since"));
  EXPECT_THAT(text.out, Not(HasSubstr(id)));
}

TEST_P(CommandOn, WaitUntilTheLockIsReleased) {
  const auto id = acquired(key);
  CommandProcess waiting(url, {"acquire", key, "--wait", "1m", "-v"});
  ASSERT_TRUE(begins_to_wait(waiting));
  EXPECT_FALSE(waiting.has_ended());
  EXPECT_EQ(run({"-q", "release", id}).exit_code, 0);
  EXPECT_EQ(waiting.finish().exit_code, 0);
}

TEST_P(CommandOn, BeInterruptedAndLeaveNoLock) {
  const auto id = acquired(key);
  CommandProcess waiting(url, {"--json", "acquire", key, "--wait", "1m", "-v"});
  ASSERT_TRUE(begins_to_wait(waiting));
  waiting.send(SIGINT);
  const auto interrupted = waiting.finish();
  EXPECT_EQ(interrupted.exit_code, 130);
  EXPECT_EQ(interrupted.json().at("error").at("code"), "Aborted");
  EXPECT_EQ(run({"release", id}).exit_code, 0);
  EXPECT_EQ(run({"is-locked", key}).exit_code, 1);
}

TEST_P(CommandOn, RunACommandUnderALock) {
  const auto outcome =
      run({"--json", "run", "--key", key, "--", "sh", "-c", "echo $SYNCGUARD_KEY $SYNCGUARD_FENCE; exit 7"});
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.out, key + " 000000000000001\n");
  EXPECT_THAT(fields_of(json::parse(outcome.err)),
              ::testing::UnorderedElementsAre("ok", "lockId", "fence", "expiresAtMs", "exitCode"));
  EXPECT_EQ(run({"is-locked", key}).exit_code, 1);

  const auto id = acquired(key);
  const auto conflict = run({"run", "--json", "--key", key, "--no-wait", "--", "true"});
  EXPECT_EQ(conflict.exit_code, 75);
  EXPECT_EQ(json::parse(conflict.err), (json{{"ok", false}, {"reason", "locked"}}));
  CommandProcess waiting(url, {"run", "--key", key, "-v", "--", "true"});
  ASSERT_TRUE(begins_to_wait(waiting));
  EXPECT_EQ(run({"-q", "release", id}).exit_code, 0);
  EXPECT_EQ(waiting.finish().exit_code, 0);
}

TEST_P(CommandOn, EndACommandWhoseLockIsGone) {
  CommandProcess process(url, {"--json", "run", "--key", key, "--ttl", "9s", "--", "sleep", "60"});
  std::string id;
  ASSERT_TRUE(eventually([&] {
    const auto status = run({"--json", "status", "--raw", key}).json();
    if (status.at("locked") == true) id = status.at("lockId");
    return !id.empty();
  }));
  EXPECT_EQ(run({"release", id}).exit_code, 0);
  const auto outcome = process.finish();
  EXPECT_EQ(outcome.exit_code, 79);
  EXPECT_EQ(json::parse(outcome.err), (json{{"ok", false}, {"reason", "lost"}, {"exitCode", 79}}));
}

TEST_P(CommandOn, SetUpAndDiagnose) {
  const auto setup = run({"--json", "setup"});
  EXPECT_EQ(setup.exit_code, 0) << setup.out;
  EXPECT_THAT(fields_of(setup.json()), ::testing::UnorderedElementsAre("ok", "message"));
  EXPECT_THAT(run({"setup"}).out, Not(IsEmpty()));
  const auto doctor = run({"--json", "doctor"});
  EXPECT_EQ(doctor.exit_code, 0) << doctor.out;
  EXPECT_EQ(doctor.json().at("ok"), true);
  const auto report = doctor.json();
  for (const auto& check : report.at("checks")) {
    EXPECT_THAT(fields_of(check), ::testing::UnorderedElementsAre("check", "verdict", "found", "advice"));
  }
  EXPECT_THAT(run({"doctor"}).out, HasSubstr("fine"));
  EXPECT_THAT(run({"doctor"}).out, Not(HasSubstr("\033"))) << "no colours but at a terminal";
}

TEST_P(CommandOn, ReportAStoreThatIsOutOfReach) {
  url = store.unreachable_url();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"acquire", key},
                                                  {"release", std::string(22, 'A')},
                                                  {"extend", std::string(22, 'A')},
                                                  {"status", key},
                                                  {"is-locked", key}}) {
    auto arguments = command;
    arguments.insert(arguments.begin(), "--json");
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 69) << command[0] << outcome.out;
    EXPECT_EQ(outcome.json().at("error").at("code"), "ServiceUnavailable") << command[0];
    EXPECT_FALSE(outcome.json().at("error").at("message").get<std::string>().empty());
    const auto in_words = run(command);
    EXPECT_THAT(in_words.out, IsEmpty());
    EXPECT_THAT(in_words.err, HasSubstr("ServiceUnavailable"));
  }
  EXPECT_EQ(run({"run", "--", "true"}).exit_code, 69);
  const auto doctor = run({"--json", "doctor"});
  EXPECT_EQ(doctor.exit_code, 1) << doctor.out;
  EXPECT_EQ(doctor.json().at("ok"), false);
}

TEST_P(CommandOn, ReportARefusal) {
  url = store.forbidden_url();
  const auto outcome = run({"--json", "acquire", key});
  EXPECT_EQ(outcome.exit_code, 77) << outcome.out;
  EXPECT_EQ(outcome.json().at("error").at("code"), "AuthFailed");
  EXPECT_EQ(run({"run", "--", "true"}).exit_code, 77);
  const std::string_view name = GetParam().name;
  // On SQLite it only looks, and by its looks root may write there.
  EXPECT_EQ(run({"doctor"}).exit_code, name == "Sqlite" && geteuid() == 0 ? 0 : 1);
  if (name == "Postgres") {
    const auto refused = run({"setup"});
    EXPECT_EQ(refused.exit_code, 77);
    EXPECT_THAT(refused.err, HasSubstr("CREATE TABLE IF NOT EXISTS")) << "what somebody else is to run";
  }
}

TEST_P(CommandOn, ReportAStoreThatSaysNothing) {
  url = store.silent_url("300ms");
  const auto outcome = run({"--json", "acquire", key});
  EXPECT_EQ(outcome.exit_code, 69) << outcome.out;
  EXPECT_EQ(outcome.json().at("error").at("code"), "NetworkTimeout");
  EXPECT_EQ(run({"run", "--key", key, "--", "true"}).exit_code, 69);
}

TEST_P(CommandOn, BeInterruptedWhileAStoreSaysNothing) {
  CommandProcess asking(store.silent_url("1m"), {"acquire", key});
  ASSERT_TRUE(eventually([&] { return waits_for_signals(asking.pid()); }));
  const auto start = steady_clock::now();
  asking.send(SIGINT);
  EXPECT_EQ(asking.finish().exit_code, 130);
  EXPECT_LT(steady_clock::now() - start, 30s);
}

TEST_P(CommandOn, ReportAnInternalError) {
  store.exhaust_fences(key);
  const auto outcome = run({"--json", "acquire", key});
  EXPECT_EQ(outcome.exit_code, 70) << outcome.out;
  EXPECT_EQ(outcome.json().at("error").at("code"), "Internal");
  EXPECT_EQ(run({"run", "--key", key, "--", "true"}).exit_code, 70);
}

TEST_P(CommandOn, ReportBadArguments) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"acquire", ""},
                                                  {"acquire", key, "--ttl", "0s"},
                                                  {"release", "short"},
                                                  {"status", "--id", "short"},
                                                  {"is-locked", std::string(513, 'k')}}) {
    auto arguments = command;
    arguments.insert(arguments.begin(), "--json");
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << command[0];
    EXPECT_EQ(outcome.json().at("error").at("code"), "InvalidArgument") << command[0];
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, CommandOn, ::testing::ValuesIn(store_kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace syncguard::testing
