#include "backends/sqlite/file.hpp"

#include "async/fork.hpp"

#include <syncguard/error.hpp>

#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>
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
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return;
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
    fail(error.value(), "the folder of the database cannot be reached");
  }
  create_folders(folder.parent_path());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail(errno, "the folder of the database cannot be made");
}

void refuse_network_file_system(const std::filesystem::path& place) {
  if (file_system_of(place) == FileSystem::networked) {
    throw LockError(
        ErrorCode::invalid_argument,
        "the database is on a network file system, where SQLite's locks do not hold: choose a local path, or "
        "a backend with a server");
  }
}

}  // namespace

FileSystem file_system_of_type(std::int64_t type) {
  // From linux/magic.h and the file systems' own sources: NFS, SMB (three generations), AFS (two), Ceph, 9P, Lustre,
  // GFS2, OCFS2, GPFS, BeeGFS, Coda.
  static const std::unordered_set<std::int64_t> networked = {0x6969,     0x517B,     0xFF534D42, 0xFE534D42, 0x5346414F,
                                                             0x6B414653, 0x00C36400, 0x01021997, 0x0BD00BD0, 0x01161970,
                                                             0x7461636F, 0x47504653, 0x19830326, 0x73757245};
  constexpr std::int64_t fuse = 0x65735546;
  if (networked.contains(type)) return FileSystem::networked;
  return type == fuse ? FileSystem::fuse : FileSystem::local;
}

FileSystem file_system_of(const std::filesystem::path& place) {
  struct statfs system {};
  if (statfs(place.c_str(), &system) != 0) return FileSystem::local;
  // Unsigned first: where f_type is an int, SMB's would be negative.
  return file_system_of_type(static_cast<std::uint32_t>(system.f_type));
}

void create_private_file(const std::filesystem::path& path) {
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  create_folders(folder);
  refuse_network_file_system(folder);
  struct stat existing {};
  if (stat(path.c_str(), &existing) == 0) {
    refuse_network_file_system(path);  // it may be a link to elsewhere
    return;
  }

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

namespace {

// In which generation of processes files were opened. After a fork, the child's copy still names the parent's.
std::mutex open_files_mutex;
std::multimap<std::pair<std::uint64_t, std::uint64_t>, unsigned> open_files;

}  // namespace

FileInUse::FileInUse(const std::filesystem::path& path) {
  create_private_file(path);
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) fail(errno, "the database cannot be reached");
  file_ = {status.st_dev, status.st_ino};
  const std::lock_guard lock(open_files_mutex);
  const auto [first, last] = open_files.equal_range(file_);
  if (std::any_of(first, last, [](const auto& entry) { return entry.second != async::fork_generation(); })) {
    throw LockError(
        ErrorCode::invalid_argument,
        "this process was forked from one that had the same database open, and SQLite's locks do not survive "
        "that: close the client before forking, or run another program in the child");
  }
  open_files.emplace(file_, async::fork_generation());
}

FileInUse::~FileInUse() {
  const std::lock_guard lock(open_files_mutex);
  const auto [first, last] = open_files.equal_range(file_);
  const auto mine =
      std::find_if(first, last, [](const auto& entry) { return entry.second == async::fork_generation(); });
  if (mine != last) open_files.erase(mine);
}

}  // namespace syncguard::sqlite
