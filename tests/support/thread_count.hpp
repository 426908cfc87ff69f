// Counts threads of this process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

namespace syncguard::testing {

// The number of threads of this process.
inline std::size_t thread_count() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

// The number of threads of this process with this name, which os::start_thread sets.
inline std::size_t threads_named(std::string_view name) {
  std::size_t count = 0;
  std::error_code ended;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    std::ifstream file(task.path() / "comm");
    std::string found;
    if (std::getline(file, found) && found == name) ++count;
  }
  return count;
}

}  // namespace syncguard::testing
