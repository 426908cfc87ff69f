// The man page and the shell completions contain every command and option that --help shows.

#include "e2e/command_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

namespace syncguard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Manual : ::testing::Test {
  static std::string help(std::vector<std::string> command) {
    command.emplace_back("--help");
    const auto outcome = CommandProcess("memory:", command).finish();
    EXPECT_EQ(outcome.exit_code, 0);
    return outcome.out;
  }
  // The first capture group of every match of the pattern.
  static std::set<std::string> words(const std::string& text, const std::string& pattern) {
    const std::regex expression(pattern);
    std::set<std::string> found;
    for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match) {
      found.insert((*match)[1].str());
    }
    return found;
  }
  static std::set<std::string> commands() {
    const auto text = help({});
    return words(text.substr(text.find("Subcommands:")), "\n  ([a-z-]+) +[A-Z]");
  }
  static std::set<std::string> options(const std::string& text) { return words(text, "[ ,](--[a-z-]+)"); }
  static std::string document(const std::string& path) {
    auto text = text_of_file(std::filesystem::path(SYNCGUARD_SOURCE) / path);
    EXPECT_FALSE(text.empty()) << path;
    return text;
  }
};

TEST_F(Manual, DocumentsEveryCommandAndOption) {
  const auto all = commands();
  ASSERT_EQ(all.size(), 15U) << ::testing::PrintToString(all);
  auto names = options(help({}));
  for (const auto& command : all) names.merge(options(help({command})));
  ASSERT_TRUE(names.contains("--kill-after") && names.contains("--raw") && names.contains("--version"));

  const auto manual = std::regex_replace(document("docs/man/syncguard.1"), std::regex(R"(\\-)"), "-");
  const auto bash = document("completions/syncguard.bash");
  const auto zsh = document("completions/_syncguard");
  const auto fish = document("completions/syncguard.fish");
  for (const auto& command : all) {
    EXPECT_THAT(manual, HasSubstr("\n.SS " + command + "\n"));
    EXPECT_THAT(bash, HasSubstr(" " + command));
    EXPECT_THAT(zsh, HasSubstr("'" + command + ":"));
    EXPECT_THAT(fish, HasSubstr(" -a " + command + " "));
  }
  for (const auto& option : names) {
    EXPECT_THAT(manual, ::testing::ContainsRegex(option + "([^a-z-]|\n)"));
    EXPECT_THAT(bash, ::testing::ContainsRegex(option + "[^a-z-]"));
    EXPECT_THAT(zsh, ::testing::ContainsRegex(option + "[^a-z-]"));
    EXPECT_THAT(fish, HasSubstr(" -l " + option.substr(2) + " "));
  }
}

TEST_F(Manual, DocumentsEveryExitCode) {
  const auto manual = document("docs/man/syncguard.1");
  const auto text = help({});
  for (const auto* code : {"0", "1", "2", "69", "70", "75", "77", "79", "124", "126", "127", "130"}) {
    EXPECT_THAT(manual, HasSubstr(std::string("\n") + code + "|"));
    EXPECT_THAT(text, ::testing::ContainsRegex(std::string("[^0-9]") + code + "[^0-9]")) << code;
  }
}

TEST_F(Manual, HasNoFormattingErrors) {
  const TemporaryFolder folder;
  const auto complaints = (folder.path() / "complaints").string();
  const auto file = std::string(SYNCGUARD_SOURCE) + "/docs/man/syncguard.1";
  EXPECT_EQ(std::system(("groff -t -man -ww -z -Tutf8 " + file + " 2> " + complaints).c_str()), 0);
  EXPECT_THAT(text_of_file(complaints), IsEmpty());
}

TEST_F(Manual, CompletesInBash) {
  const auto completed = [](const std::string& words, int position) {
    const TemporaryFolder folder;
    const auto script = "source " SYNCGUARD_SOURCE "/completions/syncguard.bash; COMP_WORDS=(" + words +
                        "); COMP_CWORD=" + std::to_string(position) + "; _syncguard; echo \"${COMPREPLY[@]}\"";
    const auto out = (folder.path() / "out").string();
    std::ofstream(folder.path() / "script") << script;
    EXPECT_EQ(std::system(("bash " + (folder.path() / "script").string() + " > " + out).c_str()), 0);
    return text_of_file(out);
  };
  EXPECT_EQ(completed("syncguard acq", 1), "acquire\n");
  EXPECT_EQ(completed("syncguard --url sqlite:x run --ki", 4), "--kill-after\n");
  EXPECT_EQ(completed("syncguard run --key k --no", 4), "--no-wait\n");
  EXPECT_EQ(completed("syncguard status --r", 2), "--raw\n");
  EXPECT_EQ(completed("syncguard acquire --k", 2), "\n");
  EXPECT_THAT(completed("syncguard run -- mkdi", 3), HasSubstr("mkdir"));
}

}  // namespace
}  // namespace syncguard::testing
