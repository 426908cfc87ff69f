// Runs a part of a test in a child process.
#pragma once

#include "support/fork_when_idle.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>

namespace syncguard::testing {

// Runs function() in a forked child, which has no other threads. The function returns an error message, or an empty
// string on success. A message, an exception or a signal fails the test; messages go to stderr.
template <typename Function>
void expect_in_child(const Function& function) {
  const pid_t child = fork_when_idle();
  if (child == 0) {
    std::string words;
    try {
      words = function();
    } catch (const std::exception& error) {
      words = error.what();
    }
    if (!words.empty()) std::fprintf(stderr, "%s\n", words.c_str());
    _exit(words.empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the child failed with wait status " << status << "; its message is above";
}

}  // namespace syncguard::testing
