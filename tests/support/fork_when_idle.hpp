// Forks in a process that has other threads.
#pragma once

#include "support/eventually.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace syncguard::testing {

// Whether every other thread of this process sleeps in the kernel.
inline bool other_threads_sleep() {
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    if (thread.path().filename() == std::to_string(gettid())) continue;
    std::string stat;
    std::getline(std::ifstream(thread.path() / "stat"), stat);
    // Empty if the thread has just ended.
    const auto name_end = stat.rfind(')');
    if (name_end != std::string::npos && stat.compare(name_end, 3, ") S") != 0) return false;
  }
  return true;
}

// Like fork(), but at a moment when no other thread holds the lock of the memory allocator. The sanitizers do not
// release that lock in the child, where it would stay locked forever.
inline pid_t fork_when_idle() {
  (void)eventually(other_threads_sleep);
  return fork();
}

}  // namespace syncguard::testing
