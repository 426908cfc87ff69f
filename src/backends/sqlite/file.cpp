#include "backends/sqlite/file.hpp"

#include <syncguard/error.hpp>

#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <unordered_set>

namespace syncguard::sqlite {
namespace {

[[noreturn]] void fail(int error, const std::string& what) {
  const bool forbidden = error == EACCES || error == EPERM || error == EROFS;
  const bool full = error == ENOSPC || error == EDQUOT;
  throw LockError(forbidden ? ErrorCode::auth_failed
                  : full    ? ErrorCode::rate_limited
                            : ErrorCode::service_unavailable,
                  what + ": " + std::generic_category().message(error));
}

void create_folders(const std::filesystem::path& folder) {
  if (folder.empty() || std::filesystem::is_directory(folder)) return;
  create_folders(folder.parent_path());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail(errno, "the folder of the database cannot be made");
}

void refuse_network_file_system(const std::filesystem::path& folder) {
  // From linux/magic.h and the file systems' own sources: NFS, SMB (three generations), CIFS, AFS, Ceph, 9P, Lustre,
  // GFS2, OCFS2.
  static const std::unordered_set<long> networked = {0x6969,     0x517B,     0xFF534D42, 0xFE534D42, 0x5346414F,
                                                     0x00C36400, 0x01021997, 0x0BD00BD0, 0x01161970, 0x7461636F};
  struct statfs system {};
  if (statfs(folder.c_str(), &system) == 0 && networked.contains(static_cast<long>(system.f_type))) {
    throw LockError(
        ErrorCode::invalid_argument,
        "the database is on a network file system, where SQLite's locks do not hold: choose a local path, or "
        "a backend with a server");
  }
}

}  // namespace

void create_private_file(const std::filesystem::path& path) {
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  create_folders(folder);
  refuse_network_file_system(folder);
  struct stat existing {};
  if (stat(path.c_str(), &existing) == 0) return;

  // Made under another name and linked into place only once it is closed: to close a file that another connection of
  // this process has opened would drop that connection's locks.
  std::string temporary = (folder / ".syncguard-XXXXXX").string();
  const int descriptor = mkostemp(temporary.data(), 0);
  if (descriptor < 0) fail(errno, "the database cannot be made");
  close(descriptor);
  const int linked = link(temporary.c_str(), path.c_str());
  const int error = errno;
  unlink(temporary.c_str());
  if (linked != 0 && error != EEXIST) fail(error, "the database cannot be made");
}

}  // namespace syncguard::sqlite
