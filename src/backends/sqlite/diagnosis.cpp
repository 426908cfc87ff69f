#include "backends/sqlite/diagnosis.hpp"

#include "backends/sqlite/file.hpp"
#include "core/findings.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <system_error>

namespace syncguard::sqlite {
namespace {

using core::failure;
using core::fine;
using core::warning;

std::string octal(mode_t mode) {
  constexpr mode_t permissions = 07777;
  std::string digits;
  for (mode_t rest = mode & permissions; rest != 0; rest >>= 3U)
    digits.insert(digits.begin(), static_cast<char>('0' + (rest & 7U)));
  return "0" + digits;
}

Finding schema(const std::set<std::string>& there) {
  const auto expected = Store::expected_schema();
  const auto names_not_in = [](const std::set<std::string>& names, const std::set<std::string>& others) {
    std::string list;
    for (const auto& name : names) {
      if (!others.contains(name)) list += (list.empty() ? "" : ", ") + name;
    }
    return list;
  };
  const auto missing = names_not_in(expected, there);
  const bool tables_missing = std::ranges::any_of(
      expected, [&](const std::string& name) { return name.starts_with("syncguard_") && !there.contains(name); });
  if (tables_missing) {
    return failure(
        "schema", missing + " missing",
        "restore a backup; `syncguard setup` creates the tables again, but empty (the fence counters are lost then)");
  }
  if (!missing.empty()) return failure("schema", missing + " missing", "run `syncguard setup`, which creates it again");
  const auto added = names_not_in(there, expected);
  if (!added.empty()) {
    return warning("schema", "contains objects that SyncGuard did not create: " + added,
                   "remove them (never the file), unless you know what they are for");
  }
  return fine("schema", "complete");
}

std::filesystem::path nearest_existing(std::filesystem::path path) {
  std::error_code error;
  while (!std::filesystem::exists(path, error) && path.has_parent_path() && path != path.parent_path()) {
    path = path.parent_path();
  }
  return path;
}

Finding file_system(const std::filesystem::path& place) {
  const std::string check = "file system";
  switch (file_system_of(place)) {
    case FileSystem::networked:
      return failure(check, "a network file system, where SQLite's locks do not work",
                     "choose a local path, or a backend with a server");
    case FileSystem::fuse:
      return warning(check, "in user space (FUSE), which may be local or not",
                     "make sure that it is local and keeps POSIX locks and shared memory");
    case FileSystem::local:
      break;
  }
  return fine(check, "local");
}

Finding names(const Folder& folder) {
  const std::string check = "names of the file";
  const std::string harm = ", so processes that use different names do not see each other's locks";
  switch (folder.naming()) {
    case Folder::Naming::hard_linked:
      return failure(check, "it has a second hard link" + harm, "remove the other name, or use a copy");
    case Folder::Naming::mount_point:
      return failure(check, "the file itself is a mount point" + harm, "mount its folder instead of the file");
    case Folder::Naming::unknown:
      return warning(check, "one hard link; this system does not tell whether the file is a mount point",
                     "make sure that no container mounts the file itself, only its folder");
    case Folder::Naming::single:
      break;
  }
  return fine(check, "one");
}

Finding file_permissions(const struct stat& file) {
  const std::string check = "permissions of the file";
  const auto mode = octal(file.st_mode);
  if ((file.st_mode & S_IRWXO) != 0) {
    return failure(check, mode + ": every user of this host can read lock ids and release any lock", "chmod 600 it");
  }
  if ((file.st_mode & S_IRWXG) != 0) {
    return warning(check, mode + ": its group has access, too",
                   "chmod 600 it, unless the group is meant to share locks");
  }
  return fine(check, mode);
}

Finding folder_permissions(const struct stat& folder) {
  const std::string check = "permissions of the folder";
  const auto mode = octal(folder.st_mode);
  if ((folder.st_mode & S_IWOTH) != 0 && (folder.st_mode & S_ISVTX) == 0) {
    return failure(check, mode + ": every user of this host can replace the database", "chmod 700 it");
  }
  if ((folder.st_mode & (S_IWOTH | S_IWGRP)) != 0) {
    return warning(check, mode + ": other users can create files beside the database",
                   "use a folder of your own, with mode 0700");
  }
  return fine(check, mode);
}

}  // namespace

std::vector<Finding> check_path(const std::filesystem::path& path) {
  std::vector<Finding> findings;
  const auto place = nearest_existing(path);
  findings.push_back(file_system(place));
  struct stat status {};
  if (place != path) {
    if (stat(path.c_str(), &status) != 0 && errno != ENOENT) {
      findings.push_back(failure("file", "cannot be reached: " + std::generic_category().message(errno),
                                 "choose another path, or give this user access to its folders"));
    } else if (access(place.c_str(), W_OK | X_OK) == 0) {
      try {
        (void)open_folder(std::filesystem::weakly_canonical(place));
        findings.push_back(fine("file", "does not exist yet; it is created on first use"));
      } catch (const LockError& error) {
        findings.push_back(failure("file", error.what(), ""));
      }
    } else {
      findings.push_back(failure("file", "does not exist, and this user cannot create it",
                                 "choose another path, or give this user write access to the folder"));
    }
    return findings;
  }
  try {
    findings.push_back(names(Folder(path)));
  } catch (const LockError&) {
    // Opening the database fails in the same way, and is reported.
  }
  if (stat(path.c_str(), &status) == 0) findings.push_back(file_permissions(status));
  if (stat(path.parent_path().c_str(), &status) == 0) findings.push_back(folder_permissions(status));
  for (unsigned number = 0; number < WakeFiles::count; ++number) {
    const auto file = WakeFiles::path(path, number);
    if (lstat(file.c_str(), &status) != 0 || (S_ISREG(status.st_mode) && status.st_nlink == 1)) continue;
    findings.push_back(warning("wake-up file",
                               file.filename().string() + " is not a regular file: waiters have to poll",
                               "remove it; it is created again"));
    break;
  }
  return findings;
}

std::vector<Finding> examine(const Store::Health& health, FenceSource fences) {
  std::vector<Finding> findings;
  if (health.journal_mode == "wal") {
    findings.push_back(fine("journal", "write-ahead log"));
  } else {
    findings.push_back(failure("journal", "its mode is " + health.journal_mode + ", not wal",
                               "stop other programs that use the file"));
  }
  findings.push_back(schema(health.schema));
  if (health.integrity == "ok") {
    findings.push_back(fine("integrity", "the database is intact"));
  } else {
    findings.push_back(failure("integrity", "the database is damaged",
                               "restore it from a backup, or stop all its users and remove it with its -wal and -shm "
                               "(the fence counters are lost then)"));
  }
  findings.push_back(core::fences(fences, "a restore or the removal of the file"));
  if (fences == FenceSource::clock) findings.push_back(core::fence_counters(health.highest_counter, health.now));
  return findings;
}

}  // namespace syncguard::sqlite
