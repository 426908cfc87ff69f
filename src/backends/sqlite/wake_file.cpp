#include "backends/sqlite/wake_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace syncguard::sqlite {
namespace {

// Creates the file with the permissions of the database, so that all users of the database can watch and write it.
Descriptor open_wake_file(const Folder& folder, const std::string& name) {
  const auto database = folder.status(folder.database_name());
  if (!database) return Descriptor();
  if (auto made = folder.open_file(name, O_WRONLY | O_CREAT | O_EXCL, 0600)) {
    fchmod(made.get(), database->st_mode & 0666U);
    // Safe, because Folder accepts only folders that belong to root.
    if (geteuid() == 0) [[maybe_unused]]
      const int owned = fchown(made.get(), database->st_uid, database->st_gid);
    return made;
  }
  if (errno != EEXIST) return Descriptor();
  auto found = folder.open_file(name, O_WRONLY);
  struct stat status {};
  // A pipe, or a hard link to an unrelated file, must not be written to.
  const bool usable = found && fstat(found.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 1;
  return usable ? std::move(found) : Descriptor();
}

}  // namespace

WakeFile::WakeFile(const Folder& folder)
    : path_(folder.database().string() + "-wake"), file_(open_wake_file(folder, path_.filename().string())) {}

void WakeFile::notify() const noexcept { [[maybe_unused]] const auto written = pwrite(file_.get(), "\n", 1, 0); }

}  // namespace syncguard::sqlite
