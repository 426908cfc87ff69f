// Counts threads of this process, and how often they sleep.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace syncguard::testing {

// The number of threads of this process.
inline std::size_t thread_count() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

// The folders in /proc of the threads of this process with this name, which os::start_thread sets.
inline std::vector<std::filesystem::path> folders_of_threads_named(std::string_view name) {
  std::vector<std::filesystem::path> folders;
  std::error_code ended;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    std::ifstream file(task.path() / "comm");
    std::string found;
    if (std::getline(file, found) && found == name) folders.push_back(task.path());
  }
  return folders;
}

// The number of threads of this process with this name.
inline std::size_t threads_named(std::string_view name) { return folders_of_threads_named(name).size(); }

// How often the threads of this process with this name went to sleep.
inline std::size_t sleeps_of_threads_named(std::string_view name) {
  constexpr std::string_view label = "voluntary_ctxt_switches:";
  std::size_t sleeps = 0;
  for (const auto& folder : folders_of_threads_named(name)) {
    std::ifstream status(folder / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(label)) sleeps += std::stoul(line.substr(label.size()));
    }
  }
  return sleeps;
}

}  // namespace syncguard::testing
