// The files by which one process notifies a waiter in another process that it got its turn.
#pragma once

#include "backends/sqlite/file.hpp"

#include <filesystem>
#include <optional>
#include <string_view>

namespace syncguard::sqlite {

// Files beside the database, PATH-wake-0 to PATH-wake-f. A waiter watches the one that its id selects, and a process
// that gave it a turn writes to that file after the commit: so few other waiters are woken, and no file has to be
// removed when a waiter dies. The WAL would not serve: it is written for every commit, and before the commit is visible
// (docs/adr/0011-sqlite-wake-files.md). A lost notification only costs time.
class WakeFiles {
 public:
  static constexpr unsigned count = 16;

  explicit WakeFiles(Folder folder) : folder_(std::move(folder)) {}

  // The number of the file for a waiter.
  static unsigned number_for(std::string_view waiter) noexcept;
  static std::filesystem::path path(const std::filesystem::path& database, unsigned number);

  // Creates the file if it does not exist. Returns its path if it can be watched: not if it cannot be created, or is
  // not a regular file with one name. Such a waiter has to poll.
  [[nodiscard]] std::optional<std::filesystem::path> prepare(unsigned number) const;
  // Does nothing if the file does not exist: no waiter watches it then.
  void notify(std::string_view waiter) const noexcept;

 private:
  Folder folder_;
};

}  // namespace syncguard::sqlite
