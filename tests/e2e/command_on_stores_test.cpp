// Every command, exit code and JSON object, on every store.

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
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

std::vector<std::string> fields_of(const json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

struct CommandOn : ::testing::TestWithParam<StoreKind> {
  // Tests share a store, so each uses its own key.
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
  // The command prints this only with -v.
  static bool begins_to_wait(const CommandProcess& process) {
    return eventually([&] { return process.err().find("locked by another holder; waiting") != std::string::npos; });
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
  EXPECT_THAT(object.at("fence").get<std::string>(), MatchesRegex("[0-9]{15}"));
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

TEST_P(CommandOn, AcquirePrintsOnlyTheIdForScripts) {
  const auto first = run({"acquire", key});
  ASSERT_EQ(first.out.size(), 23U) << first.err;
  const auto id = first.out.substr(0, 22);
  EXPECT_TRUE(LockId::is_valid(id));
  EXPECT_THAT(first.err, ContainsRegex("with fence [0-9]{15}"));
  EXPECT_THAT(run({"extend", id}).out, IsEmpty());
  const auto released = run({"-q", "release", id});
  EXPECT_THAT(released.out + released.err, IsEmpty());
}

TEST_P(CommandOn, StatusDescribesLock) {
  EXPECT_EQ(run({"--json", "status", key}).json(), (json{{"locked", false}}));
  EXPECT_EQ(run({"status", key}).exit_code, 1);
  EXPECT_EQ(run({"is-locked", key}).exit_code, 1);
  EXPECT_EQ(run({"--json", "is-locked", key}).json(), (json{{"locked", false}}));
  const auto id = acquired(key);
  EXPECT_EQ(run({"is-locked", key}).exit_code, 0);
  EXPECT_EQ(run({"--json", "is-locked", key}).json(), (json{{"locked", true}}));

  const auto by_key = run({"--json", "status", key});
  EXPECT_EQ(by_key.exit_code, 0);
  EXPECT_THAT(fields_of(by_key.json()),
              ::testing::UnorderedElementsAre("locked", "keyHash", "lockIdHash", "fence", "expiresAtMs", "acquiredAtMs",
                                              "holder", "waiters", "heldMs", "remainingMs"));
  EXPECT_EQ(by_key.json().at("keyHash"), hash_key(key));
  EXPECT_EQ(by_key.json().at("lockIdHash"), hash_key(id));
  EXPECT_THAT(by_key.json().at("holder").get<std::string>(), ContainsRegex("^[^@]+@[^/]*/[0-9]+$"));
  EXPECT_EQ(run({"--json", "status", "--id", id}).json().at("lockIdHash"), hash_key(id));
  const auto raw = run({"--json", "status", key, "--raw"}).json();
  EXPECT_EQ(raw.at("key"), key);
  EXPECT_EQ(raw.at("lockId"), id);
  const auto text = run({"status", key});
  EXPECT_THAT(text.out, ContainsRegex("^locked by [^@]+@[^/]*/[0-9]+\nsince [-0-9: ]+[+-][0-9]+ "));
  EXPECT_THAT(text.out, HasSubstr("\nkey "));
  EXPECT_THAT(text.out, Not(HasSubstr(id)));
}

TEST_P(CommandOn, ListShowsLocksAndTheirHolders) {
  EXPECT_THAT(run({"--json", "list", key}).json().at("locks"), IsEmpty());
  const auto id = acquired(key);
  const auto found = run({"--json", "list", key}).json().at("locks");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].at("key"), key);
  const auto table = run({"list", key});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, ContainsRegex("^KEY +HOLDER +HELD +EXPIRES IN +FENCE +WAITING\n"));
  EXPECT_THAT(table.out, HasSubstr(found[0].at("holder").get<std::string>()));
  EXPECT_THAT(table.out, Not(HasSubstr(id)));
  EXPECT_THAT(run({"list", key + "x"}).out, IsEmpty());
}

TEST_P(CommandOn, BreakReleasesLockOfAnotherHolder) {
  EXPECT_EQ(run({"break", key, "--yes"}).exit_code, 1);
  const auto id = acquired(key);
  const auto refused = run({"break", key});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--yes"));
  EXPECT_EQ(run({"--json", "break", key, "--fence", "7", "--yes"}).json(),
            (json{{"ok", false}, {"reason", "other-fence"}}));
  EXPECT_EQ(run({"is-locked", key}).exit_code, 0);
  const auto fence = run({"--json", "status", key}).json().at("fence").get<std::string>();
  const auto broken = run({"break", key, "--fence", fence, "--yes"});
  EXPECT_EQ(broken.exit_code, 0) << broken.err;
  EXPECT_THAT(broken.err, HasSubstr("warning: a lock was broken"));
  EXPECT_EQ(run({"is-locked", key}).exit_code, 1);
  EXPECT_EQ(run({"-q", "release", id}).exit_code, 1);
}

TEST_P(CommandOn, FenceShowsAndRaisesCounter) {
  EXPECT_EQ(run({"fence", key}).out, "000000000000000\n");
  EXPECT_EQ(run({"--json", "fence", key, "--raise", "50000000000000"}).json(), (json{{"fence", "050000000000000"}}));
  EXPECT_EQ(run({"fence", key, "--raise", "5"}).out, "050000000000000\n");
  const auto id = acquired(key);
  EXPECT_EQ(run({"fence", key}).out, "050000000000001\n");
  EXPECT_EQ(run({"fence", key, "--raise", "900000000000000"}).exit_code, 2);
}

TEST_P(CommandOn, WatchPrintsChanges) {
  CommandProcess watching(url, {"--json", "watch", key});
  ASSERT_TRUE(eventually([&] { return watching.out().find("\"locked\":false") != std::string::npos; }));
  const auto id = acquired(key);
  EXPECT_TRUE(eventually([&] { return watching.out().find("\"locked\":true") != std::string::npos; }));
  watching.send(SIGTERM);
  (void)watching.finish();
  EXPECT_EQ(watching.killed_by(), SIGTERM);
}

TEST_P(CommandOn, AcquireWaitsForRelease) {
  const auto id = acquired(key);
  CommandProcess waiting(url, {"acquire", key, "--wait", "1m", "-v"});
  ASSERT_TRUE(begins_to_wait(waiting));
  EXPECT_FALSE(waiting.has_ended());
  EXPECT_EQ(run({"-q", "release", id}).exit_code, 0);
  EXPECT_EQ(waiting.finish().exit_code, 0);
}

TEST_P(CommandOn, InterruptedAcquireLeavesNoLock) {
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

TEST_P(CommandOn, RunHoldsLockWhileCommandRuns) {
  const auto outcome =
      run({"--json", "run", "--key", key, "--", "sh", "-c", "echo $SYNCGUARD_KEY $SYNCGUARD_FENCE; exit 7"});
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.out, key + " " + json::parse(outcome.err).at("fence").get<std::string>() + "\n");
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

TEST_P(CommandOn, RunEndsCommandIfLockIsLost) {
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

TEST_P(CommandOn, SetupAndDoctor) {
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
  EXPECT_THAT(run({"doctor"}).out, Not(HasSubstr("\033"))) << "colors only at a terminal";
}

TEST_P(CommandOn, SetupPrintsSqlWithoutConnecting) {
  url = store.unreachable_url();
  const auto printed = run({"setup", "--print"});
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  const std::string_view name = GetParam().name;
  if (name == "Sqlite" || name == "Postgres") {
    EXPECT_THAT(printed.out, HasSubstr("CREATE TABLE IF NOT EXISTS"));
    EXPECT_THAT(printed.out, ::testing::EndsWith("\nCOMMIT;\n"));
    EXPECT_THAT(printed.err, IsEmpty());
  } else {
    EXPECT_THAT(printed.out, IsEmpty());
    EXPECT_THAT(printed.err, HasSubstr("needs no setup"));
  }
  const auto object = run({"--json", "setup", "--print"}).json();
  EXPECT_THAT(fields_of(object), ::testing::UnorderedElementsAre("ok", "sql"));
  EXPECT_EQ(object.at("sql"), printed.out);
}

TEST_P(CommandOn, CleanupKeepsLiveLocks) {
  const auto lease = run({"acquire", key, "--ttl", "10m"});
  ASSERT_EQ(lease.exit_code, 0) << lease.err;
  const auto counted = run({"--json", "cleanup", "--older-than", "0s", "--dry-run"});
  EXPECT_EQ(counted.exit_code, 0) << counted.out;
  EXPECT_EQ(counted.json().at("ok"), true);
  EXPECT_THAT(fields_of(counted.json()), ::testing::IsSupersetOf({"ok", "found"}));
  EXPECT_FALSE(counted.json().contains("more")) << "the number is exact";
  const auto removed = run({"--json", "cleanup", "--older-than", "0s"});
  EXPECT_EQ(removed.exit_code, 0) << removed.out;
  EXPECT_TRUE(removed.json().at("removed").is_number());
  EXPECT_EQ(removed.json().contains("message"), std::string_view(GetParam().name) == "Redis");
  EXPECT_EQ(run({"is-locked", key}).exit_code, 0);
  EXPECT_THAT(run({"cleanup"}).out, Not(IsEmpty()));
}

TEST_P(CommandOn, ReportsUnreachableStore) {
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
    EXPECT_THAT(outcome.err, IsEmpty()) << command[0] << ": a client library must not print its own messages";
    const auto in_words = run(command);
    EXPECT_THAT(in_words.out, IsEmpty());
    EXPECT_THAT(in_words.err, HasSubstr("ServiceUnavailable"));
  }
  const auto ran = run({"run", "--json", "--", "true"});
  EXPECT_EQ(ran.exit_code, 69);
  EXPECT_EQ(json::parse(ran.err).at("error").at("code"), "ServiceUnavailable")
      << "stderr must contain only the JSON object";
  const auto doctor = run({"--json", "doctor"});
  EXPECT_EQ(doctor.exit_code, 1) << doctor.out;
  EXPECT_EQ(doctor.json().at("ok"), false);
}

TEST_P(CommandOn, ReportsRejectedCredentials) {
  url = store.forbidden_url();
  const auto outcome = run({"--json", "acquire", key});
  EXPECT_EQ(outcome.exit_code, 77) << outcome.out;
  EXPECT_EQ(outcome.json().at("error").at("code"), "AuthFailed");
  EXPECT_EQ(run({"run", "--", "true"}).exit_code, 77);
  EXPECT_EQ(run({"doctor"}).exit_code, 1);
  if (std::string_view(GetParam().name) == "Postgres") {
    // With existing tables, setup has nothing to create.
    url += std::string(url.find('?') == std::string::npos ? "?" : "&") + "table=missing&fence_table=missing_fences";
    const auto refused = run({"setup"});
    EXPECT_EQ(refused.exit_code, 77);
    EXPECT_THAT(refused.err, HasSubstr("CREATE TABLE IF NOT EXISTS")) << "the statements for an administrator";
  }
}

TEST_P(CommandOn, ReportsSilentStore) {
  url = store.silent_url("300ms");
  const auto outcome = run({"--json", "acquire", key});
  EXPECT_EQ(outcome.exit_code, 69) << outcome.out;
  EXPECT_EQ(outcome.json().at("error").at("code"), "NetworkTimeout");
  // Without --no-wait, run waits for a busy SQLite file.
  EXPECT_EQ(run({"run", "--no-wait", "--key", key, "--", "true"}).exit_code, 69);
}

TEST_P(CommandOn, CanBeInterruptedWhileStoreIsSilent) {
  CommandProcess asking(store.silent_url("1m"), {"acquire", key});
  ASSERT_TRUE(eventually([&] { return waits_for_signals(asking.pid()); }));
  const auto start = steady_clock::now();
  asking.send(SIGINT);
  EXPECT_EQ(asking.finish().exit_code, 130);
  EXPECT_LT(steady_clock::now() - start, 30s);
}

TEST_P(CommandOn, ReportsInternalError) {
  store.exhaust_fences(key);
  const auto outcome = run({"--json", "acquire", key});
  EXPECT_EQ(outcome.exit_code, 70) << outcome.out;
  EXPECT_EQ(outcome.json().at("error").at("code"), "Internal");
  EXPECT_EQ(run({"run", "--key", key, "--", "true"}).exit_code, 70);
}

TEST_P(CommandOn, ReportsInvalidArguments) {
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
