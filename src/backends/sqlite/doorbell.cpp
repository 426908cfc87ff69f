#include "backends/sqlite/doorbell.hpp"

#include <syncguard/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace syncguard::sqlite {
namespace {

int open_bell(const std::filesystem::path& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) {
    throw LockError(errno == EACCES || errno == EROFS ? ErrorCode::auth_failed : ErrorCode::service_unavailable,
                    "the file that wakes waiters cannot be opened: " + std::generic_category().message(errno));
  }
  return descriptor;
}

}  // namespace

Doorbell::Doorbell(const std::filesystem::path& database)
    : path_(database.string() + "-wake"), descriptor_(open_bell(path_)) {}

Doorbell::~Doorbell() { close(descriptor_); }

void Doorbell::ring() noexcept { [[maybe_unused]] const auto written = pwrite(descriptor_, "\n", 1, 0); }

}  // namespace syncguard::sqlite
