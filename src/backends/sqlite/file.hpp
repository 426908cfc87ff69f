// Checks, creates and opens the files of the SQLite backend before SQLite uses them.
#pragma once

#include "os/descriptor.hpp"

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>

namespace syncguard::sqlite {

// Whether SQLite's locks work on a file system. fuse: a file system in user space that is not known to be networked.
enum class FileSystem { local, networked, fuse };
FileSystem file_system_of(const std::filesystem::path& place);
// By the type number from statfs.
FileSystem file_system_of_type(std::int64_t type);
// For FUSE, whose file systems share one type number: by the device's mount type in /proc/self/mountinfo.
FileSystem file_system_in_user_space(std::istream& mounts, dev_t device);

// The mount that an open file is on. nullopt if the system does not tell.
std::optional<std::uint64_t> mount_of(const os::Descriptor& file);

// Opens a folder, given by an absolute path without links. Throws LockError: auth_failed for root if another user could
// replace the folder or one above it.
os::Descriptor open_folder(const std::filesystem::path& path);

// The folder of a database, opened once. Files beside the database are opened and created relative to it, so renaming
// the folder or replacing it by a link has no effect.
class Folder {
 public:
  // Resolves the links in the path of the database, creates missing folders (mode 0700) and opens the database's
  // folder. Throws LockError: invalid_argument for a link that points to nothing, auth_failed for root if
  // another user could replace the folder or its files.
  explicit Folder(const std::filesystem::path& database);

  // The path of the database, without links.
  [[nodiscard]] const std::filesystem::path& database() const noexcept { return database_; }
  [[nodiscard]] std::string database_name() const { return database_.filename().string(); }

  // The status of the file with that name; nullopt if there is none. Does not follow links. Throws LockError.
  [[nodiscard]] std::optional<struct stat> status(const std::string& name) const;
  // Like openat; returns no descriptor and sets errno on failure. Never follows a link or waits for the other end of a
  // pipe.
  [[nodiscard]] os::Descriptor open_file(const std::string& name, int flags, mode_t mode = 0) const noexcept;

  // Throws LockError(auth_failed) for a database that another user may have created here, and for a -wal or -shm of a
  // user that may not write the database: its contents would become those of the database.
  void expect_own_files() const;

  // Whether the database has only this name. SQLite derives the names of -wal and -shm from it, so two processes that
  // use different names of one file do not see each other's locks. hard_linked: it has a second hard link.
  // mount_point: the file itself is a bind mount, so it also has the name of the mount's source. unknown: neither, as
  // far as this system tells (no mount ids from statx, and no /proc). Requires that the database exists. Throws
  // LockError.
  enum class Naming { single, hard_linked, mount_point, unknown };
  [[nodiscard]] Naming naming() const;
  // Throws LockError(invalid_argument) for a database that has a second name.
  void expect_single_name() const;

  // Creates the database, readable only by its owner, unless the file exists. Never changes an existing file. Throws
  // LockError: invalid_argument for a network file system, if the path is not a regular file, or if the file has a
  // second name; see also expect_own_files().
  void create_database() const;

 private:
  std::filesystem::path database_;
  os::Descriptor descriptor_;
};

// Registers a database as open in this process. Creates it first if necessary, see Folder::create_database().
//
// File locks do not survive a fork, but SQLite's record of them does: a forked child that opens the same file would
// believe that it holds its parent's locks. The constructor therefore throws LockError(invalid_argument) in such a
// child.
class FileInUse {
 public:
  explicit FileInUse(const Folder& folder);
  FileInUse(const FileInUse&) = delete;
  FileInUse& operator=(const FileInUse&) = delete;
  ~FileInUse();

 private:
  std::pair<std::uint64_t, std::uint64_t> file_;  // device and inode
};

}  // namespace syncguard::sqlite
