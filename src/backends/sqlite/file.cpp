#include "backends/sqlite/file.hpp"

#include "os/fork.hpp"

#include <syncguard/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

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

[[noreturn]] void refuse_link() {
  throw LockError(ErrorCode::invalid_argument,
                  "the path of the database contains a symbolic link that points to nothing: create its target, or "
                  "remove the link");
}

constexpr int folder_flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// Does not follow links: the path was resolved, so any link left dangles, or was created in the meantime.
os::Descriptor open_below(const os::Descriptor& parent, const std::string& name) {
  os::Descriptor folder(openat(parent.get(), name.c_str(), folder_flags));
  if (!folder && errno == ENOENT) {
    if (mkdirat(parent.get(), name.c_str(), 0700) != 0 && errno != EEXIST) {
      fail(errno, "cannot create the folder of the database");
    }
    folder = os::Descriptor(openat(parent.get(), name.c_str(), folder_flags));
  }
  if (folder) return folder;
  const int error = errno;
  struct stat found {};
  if (fstatat(parent.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(found.st_mode)) refuse_link();
  fail(error, "cannot open the folder of the database");
}

struct stat status_of(const os::Descriptor& file) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail(errno, "cannot open the folder of the database");
  return status;
}

// Another user must not be able to redirect root's writes by replacing a folder. In a user namespace, the system's root
// is the owner of "/".
void expect_safe_for_root(const struct stat& folder, uid_t owner_of_root) {
  if (folder.st_uid != 0 && folder.st_uid != owner_of_root) {
    throw LockError(ErrorCode::auth_failed,
                    "the database is in, or below, a folder of another user, which could redirect root's writes: run "
                    "as that user, or choose a folder owned by root");
  }
  if ((folder.st_mode & S_IWOTH) != 0 && (folder.st_mode & S_ISVTX) == 0) {
    throw LockError(ErrorCode::auth_failed,
                    "the database is in, or below, a folder that every user can write to, which could redirect "
                    "root's writes: chmod o-w the folder, or choose another");
  }
}

// One spelling per file, and never one that means something else to SQLite (such as ":memory:").
std::filesystem::path without_links(const std::filesystem::path& path) {
  std::error_code error;
  const auto canonical = std::filesystem::weakly_canonical(path, error);
  return std::filesystem::absolute(error ? path : canonical);
}

FileSystem file_system_of(const os::Descriptor& file) {
  struct statfs system {};
  if (fstatfs(file.get(), &system) != 0) return FileSystem::local;
  // Converted to unsigned first: where f_type is an int, SMB's number would be negative.
  const auto type = file_system_of_type(static_cast<std::uint32_t>(system.f_type));
  struct stat status {};
  if (type != FileSystem::fuse || fstat(file.get(), &status) != 0) return type;
  std::ifstream mounts("/proc/self/mountinfo");
  return file_system_in_user_space(mounts, status.st_dev);
}

void refuse_network_file_system(const os::Descriptor& file) {
  if (file_system_of(file) == FileSystem::networked) {
    throw LockError(
        ErrorCode::invalid_argument,
        "the database is on a network file system, where SQLite's locks do not work: choose a local path, or "
        "a backend with a server");
  }
}

}  // namespace

os::Descriptor open_folder(const std::filesystem::path& path) {
  os::Descriptor folder(open("/", folder_flags));
  if (!folder) fail(errno, "cannot open the folder of the database");
  const uid_t owner_of_root = status_of(folder).st_uid;
  const bool is_root = geteuid() == 0;
  for (const auto& name : path.relative_path()) {
    if (is_root) expect_safe_for_root(status_of(folder), owner_of_root);
    folder = open_below(folder, name.string());
  }
  if (is_root) expect_safe_for_root(status_of(folder), owner_of_root);
  return folder;
}

FileSystem file_system_of_type(std::int64_t type) {
  // From linux/magic.h and the file systems' own sources: NFS, SMB (three generations), AFS (two), Ceph, 9P, Lustre,
  // GFS2, OCFS2, GPFS, BeeGFS, Coda, NCP, OrangeFS, PanFS, StorNext, ACFS, IBRIX; folders of the host in VirtualBox,
  // VMware and Parallels.
  constexpr auto networked = std::to_array<std::int64_t>(
      {0x6969,     0x517B,     0xFF534D42, 0xFE534D42, 0x5346414F, 0x6B414653, 0x00C36400, 0x01021997,
       0x0BD00BD0, 0x01161970, 0x7461636F, 0x47504653, 0x19830326, 0x73757245, 0x564C,     0x20030528,
       0xAAD7AAEA, 0xBEEFDEAD, 0x61636673, 0x013111A8, 0x786F4256, 0xBACBACBC, 0x7C7C6673});
  constexpr std::int64_t fuse = 0x65735546;
  if (std::ranges::find(networked, type) != networked.end()) return FileSystem::networked;
  return type == fuse ? FileSystem::fuse : FileSystem::local;
}

FileSystem file_system_in_user_space(std::istream& mounts, dev_t device) {
  constexpr auto networked = std::to_array<std::string_view>(
      {"virtiofs",       "fuse.afp",      "fuse.blobfuse", "fuse.blobfuse2",   "fuse.ceph-fuse", "fuse.curlftpfs",
       "fuse.davfs",     "fuse.davfs2",   "fuse.dbxfs",    "fuse.fuse-nfs",    "fuse.gcsfuse",   "fuse.geesefs",
       "fuse.glusterfs", "fuse.goofys",   "fuse.grpcfuse", "fuse.gvfsd-fuse",  "fuse.httpfs",    "fuse.juicefs",
       "fuse.kio-fuse",  "fuse.lizardfs", "fuse.mfs",      "fuse.moosefs",     "fuse.mount-s3",  "fuse.mountpoint-s3",
       "fuse.onedriver", "fuse.orangefs", "fuse.rclone",   "fuse.s3fs",        "fuse.s3ql",      "fuse.saunafs",
       "fuse.seaweedfs", "fuse.smbnetfs", "fuse.sshfs",    "fuse.vmhgfs-fuse", "fuse.weed"});
  const std::string wanted = std::to_string(major(device)) + ":" + std::to_string(minor(device));
  for (std::string line; std::getline(mounts, line);) {
    // id, parent, device, root, mount point, options, optional fields, "-", type
    std::istringstream fields(line);
    std::string id;
    std::string parent;
    std::string number;
    fields >> id >> parent >> number;
    const auto separator = line.find(" - ");
    if (number != wanted || separator == std::string::npos) continue;
    std::string type;
    std::istringstream(line.substr(separator + 3)) >> type;
    return std::ranges::find(networked, type) != networked.end() ? FileSystem::networked : FileSystem::fuse;
  }
  return FileSystem::fuse;
}

FileSystem file_system_of(const std::filesystem::path& place) {
  const os::Descriptor file(open(place.c_str(), O_PATH | O_CLOEXEC));
  return file ? file_system_of(file) : FileSystem::local;
}

std::optional<std::uint64_t> mount_of(const os::Descriptor& file) {
  struct statx status {};
  if (statx(file.get(), "", AT_EMPTY_PATH, STATX_MNT_ID, &status) == 0 && (status.stx_mask & STATX_MNT_ID) != 0) {
    return status.stx_mnt_id;
  }
  // Kernels before 5.8 do not tell mount ids by statx, and old sandboxes forbid it.
  std::ifstream lines("/proc/self/fdinfo/" + std::to_string(file.get()));
  for (std::string name; lines >> name;) {
    std::uint64_t mount{};
    if (name == "mnt_id:" && lines >> mount) return mount;
    lines.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// ---------------------------------------------------------------------------------------------------------------------
// Folder

Folder::Folder(const std::filesystem::path& database)
    : database_(without_links(database)), descriptor_(open_folder(database_.parent_path())) {}

std::optional<struct stat> Folder::status(const std::string& name) const {
  struct stat found {};
  if (fstatat(descriptor_.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0) return found;
  if (errno == ENOENT) return std::nullopt;
  fail(errno, "cannot open the database");
}

os::Descriptor Folder::open_file(const std::string& name, int flags, mode_t mode) const noexcept {
  return os::Descriptor(openat(descriptor_.get(), name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode));
}

void Folder::expect_own_files() const {
  const auto own = geteuid();
  const auto folder = status_of(descriptor_);
  const auto database = status(database_name());
  const auto owner = database ? database->st_uid : own;
  const bool others_can_create = (folder.st_mode & S_IWOTH) != 0 || (own == 0 && (folder.st_mode & S_IWGRP) != 0);
  if (others_can_create && owner != own && owner != 0) {
    throw LockError(ErrorCode::auth_failed,
                    "the database belongs to another user, in a folder where other users can create files: choose "
                    "another folder");
  }
  // Users that may write the database may also write these.
  if (database && (database->st_mode & (S_IWGRP | S_IWOTH)) != 0) return;
  for (const char* const suffix : {"-wal", "-shm"}) {
    const auto file = status(database_name() + suffix);
    if (file && file->st_uid != owner && file->st_uid != own && file->st_uid != 0) {
      throw LockError(ErrorCode::auth_failed,
                      "a file beside the database (-wal or -shm) belongs to a user that may not write the database: "
                      "remove that file while no process uses the database, and let only its users create files there");
    }
  }
}

Folder::Naming Folder::naming() const {
  // Closing an O_PATH descriptor does not drop locks.
  const auto file = open_file(database_name(), O_PATH);
  if (!file) fail(errno, "cannot open the database");
  if (status_of(file).st_nlink > 1) return Naming::hard_linked;
  const auto mount_of_file = mount_of(file);
  const auto mount_of_folder = mount_of(descriptor_);
  if (!mount_of_file || !mount_of_folder) return Naming::unknown;
  return mount_of_file == mount_of_folder ? Naming::single : Naming::mount_point;
}

void Folder::expect_single_name() const {
  switch (naming()) {
    case Naming::hard_linked:
      throw LockError(ErrorCode::invalid_argument,
                      "the database has a second name, a hard link; processes that use different names do not see each "
                      "other's locks: remove the other name, or use a copy");
    case Naming::mount_point:
      throw LockError(ErrorCode::invalid_argument,
                      "the database itself is a mount point, so it has a second name, and processes that use different "
                      "names do not see each other's locks: mount its folder instead of the file");
    case Naming::single:
    case Naming::unknown:
      break;
  }
}

void Folder::create_database() const {
  refuse_network_file_system(descriptor_);
  expect_own_files();
  // Closing a file drops the locks that this process has on it. So no connection of this process may open the database
  // between its creation and the close. A temporary file that is linked into place would be a second name.
  static constinit std::mutex creation;
  const std::lock_guard lock(creation);
  const auto name = database_name();
  if (const auto existing = status(name)) {
    if (S_ISLNK(existing->st_mode)) refuse_link();
    if (!S_ISREG(existing->st_mode)) {
      throw LockError(ErrorCode::invalid_argument,
                      "the path of the database is not a regular file: choose another path");
    }
    // The file itself may be a mount from another file system. Closing an O_PATH descriptor does not drop locks.
    const auto file = open_file(name, O_PATH);
    if (!file) fail(errno, "cannot open the database");
    refuse_network_file_system(file);
    expect_single_name();
    return;
  }
  if (!open_file(name, O_RDWR | O_CREAT | O_EXCL, 0600) && errno != EEXIST) fail(errno, "cannot create the database");
}

// ---------------------------------------------------------------------------------------------------------------------
// FileInUse

namespace {

constinit std::mutex open_files_mutex;
// The fork generation in which each file was opened. After a fork, the child's copy still has the parent's generation.
// Never destroyed: static objects may open and close databases before main and while the process exits. Requires the
// mutex.
std::multimap<std::pair<std::uint64_t, std::uint64_t>, unsigned>& open_files() {
  static auto& files = *new std::multimap<std::pair<std::uint64_t, std::uint64_t>, unsigned>;
  return files;
}

}  // namespace

FileInUse::FileInUse(const Folder& folder) {
  folder.create_database();
  const auto status = folder.status(folder.database_name());
  if (!status) fail(ENOENT, "cannot open the database");
  file_ = {status->st_dev, status->st_ino};
  const std::lock_guard lock(open_files_mutex);
  const auto [first, last] = open_files().equal_range(file_);
  if (std::any_of(first, last, [](const auto& entry) { return entry.second != os::fork_generation(); })) {
    throw LockError(
        ErrorCode::invalid_argument,
        "this process was forked from one that had the same database open, and SQLite's locks do not survive "
        "that: close the client before forking, or run another program in the child");
  }
  open_files().emplace(file_, os::fork_generation());
}

FileInUse::~FileInUse() {
  const std::lock_guard lock(open_files_mutex);
  const auto [first, last] = open_files().equal_range(file_);
  const auto own = std::find_if(first, last, [](const auto& entry) { return entry.second == os::fork_generation(); });
  if (own != last) open_files().erase(own);
}

}  // namespace syncguard::sqlite
