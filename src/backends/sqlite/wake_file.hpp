// The file by which one process notifies the others that a waiter got its turn.
#pragma once

#include "backends/sqlite/file.hpp"

#include <filesystem>

namespace syncguard::sqlite {

// A file beside the database. It is written after a commit that gave a waiter its turn, and waiters watch it. The WAL
// would not serve: it is written for every commit, and before the commit is visible
// (docs/adr/0011-sqlite-wake-file.md). A lost notification only costs time.
class WakeFile {
 public:
  // Creates the file if it does not exist. If it cannot be created, or is not a regular file with one name, notify()
  // does nothing.
  explicit WakeFile(const Folder& folder);

  // Whether there is a file to write to and to watch. Otherwise waiters have to poll.
  [[nodiscard]] bool works() const noexcept { return static_cast<bool>(file_); }
  void notify() const noexcept;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace syncguard::sqlite
