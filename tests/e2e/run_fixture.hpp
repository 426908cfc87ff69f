// Shared by the tests of `syncguard run`.
#pragma once

#include "e2e/command_process.hpp"

#include <syncguard/syncguard.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {

using namespace std::chrono_literals;

// Appends the time to a file, continuously.
inline const std::string beat = "while :; do date +%s%N >> beats; done";

struct Run : ::testing::Test {
  TemporaryFolder folder;
  // A long timeout, because the machine also runs other tests.
  std::string url = "sqlite:" + (folder.path() / "locks.db").string() + "?operation_timeout=20s";

  // Runs the script in the test's folder.
  [[nodiscard]] std::string script(const std::string& text) const {
    return "cd " + folder.path().string() + "; " + text;
  }
  std::vector<std::string> shell(std::vector<std::string> options, const std::string& text) const {
    options.insert(options.begin(), "run");
    for (const auto& word : {std::string("--"), std::string("sh"), std::string("-c"), script(text)})
      options.push_back(word);
    return options;
  }
  Outcome run(std::vector<std::string> arguments) const { return CommandProcess(url, std::move(arguments)).finish(); }
  [[nodiscard]] std::string file(const std::string& name) const { return text_of_file(folder.path() / name); }
  [[nodiscard]] bool appears(const std::string& name) const {
    return eventually([&] { return !file(name).empty(); });
  }
  [[nodiscard]] bool beats() const { return appears("beats"); }
  [[nodiscard]] bool is_locked(const std::string& key) const { return open(url).is_locked(key); }

  // Acquires the lock as soon as possible, and checks that no process of the former holder runs any more.
  void expect_no_heartbeat_after_takeover() const {
    const auto other = CommandProcess(url, shell({"--key", "k"}, "date +%s%N > mine")).finish();
    EXPECT_EQ(other.exit_code, 0) << other.err;
    std::istringstream all(file("beats"));
    std::string last;
    for (std::string line; std::getline(all, line);) last = line;
    ASSERT_FALSE(last.empty());
    EXPECT_LT(std::stoll(last), std::stoll(file("mine")));
    const auto count = file("beats").size();
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(file("beats").size(), count) << "a process of the former holder still runs";
  }
};

}  // namespace syncguard::testing
