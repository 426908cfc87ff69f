// How one process tells the others that a turn was given.
#pragma once

#include <filesystem>

namespace syncguard::sqlite {

// A file beside the database that is written to after the commit that gave a turn, and that others watch. Not the WAL:
// that is written before the commit can be seen, and for every commit (docs/adr/0011-a-doorbell-for-sqlite.md). Losing
// a ring costs time only.
class Doorbell {
 public:
  // Makes the file if it is not there. Where it cannot be had, ring does nothing: waiters poll.
  explicit Doorbell(const std::filesystem::path& database);
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;
  ~Doorbell();

  void ring() noexcept;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  const std::filesystem::path path_;
  const int descriptor_;
};

}  // namespace syncguard::sqlite
