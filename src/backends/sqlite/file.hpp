// The file of the embedded backend, before SQLite sees it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

namespace syncguard::sqlite {

// What is known about locks on a file system. FUSE cannot be told: it may be local.
enum class FileSystem { local, networked, fuse };
FileSystem file_system_of(const std::filesystem::path& place);
// By the number that statfs tells.
FileSystem file_system_of_type(std::int64_t type);

// Makes sure that there is a file at path that only its owner can read, in a folder that exists, on a file system where
// locks hold. Never touches a file that is there already. Throws LockError.
void create_private_file(const std::filesystem::path& path);

// A file that a connection of this process has open. Makes the file first, as above.
//
// SQLite's locks do not survive a fork, but its memory of them does: a child that opened the same file again would
// believe that it holds what the parent holds. So that is refused, with LockError(invalid_argument).
class FileInUse {
 public:
  explicit FileInUse(const std::filesystem::path& path);
  FileInUse(const FileInUse&) = delete;
  FileInUse& operator=(const FileInUse&) = delete;
  ~FileInUse();

 private:
  std::pair<std::uint64_t, std::uint64_t> file_;  // device and inode
};

}  // namespace syncguard::sqlite
