#include "backends/sqlite/doorbell.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace syncguard::sqlite {
namespace {

// With the rights of the database, so that whoever may use that hears and rings. -1 where it cannot be had.
int open_bell(const std::filesystem::path& database, const std::filesystem::path& path) {
  struct stat rights {};
  if (stat(database.c_str(), &rights) != 0) return -1;
  int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor >= 0) {
    fchmod(descriptor, rights.st_mode & 0666U);
    if (geteuid() == 0) [[maybe_unused]]
      const int owned = fchown(descriptor, rights.st_uid, rights.st_gid);
  } else if (errno == EEXIST) {
    descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  }
  return descriptor;
}

}  // namespace

Doorbell::Doorbell(const std::filesystem::path& database)
    : path_(database.string() + "-wake"), descriptor_(open_bell(database, path_)) {}

Doorbell::~Doorbell() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Doorbell::ring() noexcept { [[maybe_unused]] const auto written = pwrite(descriptor_, "\n", 1, 0); }

}  // namespace syncguard::sqlite
