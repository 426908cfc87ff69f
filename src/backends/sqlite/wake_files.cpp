#include "backends/sqlite/wake_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace syncguard::sqlite {
namespace {

// A pipe, or a hard link to an unrelated file, must not be written to or watched.
os::Descriptor open_existing(const Folder& folder, const std::string& name) noexcept {
  auto found = folder.open_file(name, O_WRONLY);
  struct stat status {};
  const bool usable = found && fstat(found.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 1;
  return usable ? std::move(found) : os::Descriptor();
}

// Creates the file with the permissions of the database, so that all users of the database can watch and write it.
os::Descriptor open_or_create(const Folder& folder, const std::string& name) {
  const auto database = folder.status(folder.database_name());
  if (!database) return os::Descriptor();
  if (auto made = folder.open_file(name, O_WRONLY | O_CREAT | O_EXCL, 0600)) {
    fchmod(made.get(), database->st_mode & 0666U);
    // Safe, because Folder accepts only folders that belong to root.
    if (geteuid() == 0) [[maybe_unused]]
      const int owned = fchown(made.get(), database->st_uid, database->st_gid);
    return made;
  }
  return errno == EEXIST ? open_existing(folder, name) : os::Descriptor();
}

}  // namespace

unsigned WakeFiles::number_for(std::string_view waiter) noexcept {
  unsigned sum = 0;
  for (const char c : waiter) sum += static_cast<unsigned char>(c);
  return sum % count;
}

std::filesystem::path WakeFiles::path(const std::filesystem::path& database, unsigned number) {
  constexpr std::string_view digits = "0123456789abcdef";
  return database.string() + "-wake-" + digits[number];
}

std::optional<std::filesystem::path> WakeFiles::prepare(unsigned number) const {
  auto file = path(folder_.database(), number);
  return open_or_create(folder_, file.filename().string()) ? std::optional(std::move(file)) : std::nullopt;
}

void WakeFiles::notify(std::string_view waiter) const noexcept {
  const auto name = path(folder_.database(), number_for(waiter)).filename().string();
  if (const auto file = open_existing(folder_, name)) {
    [[maybe_unused]] const auto written = pwrite(file.get(), "\n", 1, 0);
  }
}

}  // namespace syncguard::sqlite
