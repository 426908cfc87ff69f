// A database has one name: SQLite derives the names of -wal and -shm from it, so clients that use different names of
// one file would not see each other's locks.

#include "fixture.hpp"
#include "support/expect_error.hpp"
#include "support/findings.hpp"
#include "support/in_child.hpp"
#include "support/is_granted.hpp"
#include "support/needs_root.hpp"
#include "support/sandbox.hpp"

#include <gmock/gmock.h>
#include <sqlite3.h>
#include <sys/mount.h>

#include <fstream>
#include <string>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct SqliteNames : Sqlite {
  std::filesystem::path other_path = folder.path() / "other" / "locks.db";

  [[nodiscard]] static Locks client_of(const std::filesystem::path& file) {
    return Locks(make_sqlite_backend({.path = file}), with_long_timeout());
  }
  // What the client of this file gets: the message of the error, or an empty string.
  static std::string rejection(const std::filesystem::path& file) {
    auto locks = client_of(file);
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    if (!error) return "";
    return error->code() == ErrorCode::invalid_argument ? error->what() : "unexpected: " + std::string(error->what());
  }
  static std::string verdict(const std::filesystem::path& file) {
    return verdict_on(client_of(file).admin().diagnose(), "names of the file");
  }
};

TEST_F(SqliteNames, HardLinkIsRejectedUnderBothNames) {
  { (void)client().acquire("key"); }
  EXPECT_THAT(verdict(path), StartsWith("fine"));
  std::filesystem::create_directories(other_path.parent_path());
  std::filesystem::create_hard_link(path, other_path);
  for (const auto& name : {path, other_path}) {
    EXPECT_THAT(rejection(name), HasSubstr("hard link"));
    EXPECT_THAT(verdict(name), StartsWith("failure: it has a second hard link"));
  }
  EXPECT_FALSE(std::filesystem::exists(other_path.string() + "-wal")) << "the other name must not be used";
  std::filesystem::remove(other_path);
  EXPECT_EQ(rejection(path), "");
}

TEST_F(SqliteNames, HardLinkMadeLaterHasNoSecondHolder) {
  auto holder = client();
  auto lease = holder.acquire("key", {.ttl = 10min});
  std::filesystem::create_directories(other_path.parent_path());
  std::filesystem::create_hard_link(path, other_path);
  EXPECT_THAT(rejection(other_path), HasSubstr("hard link"));
  EXPECT_THAT(verdict_on(holder.admin().diagnose(), "names of the file"), StartsWith("failure"));
  EXPECT_TRUE(lease.extend(10min)) << "the holder's own name is still the only one in use";
}

// Another process makes the link after the database was checked and before SQLite opens it.
TEST_F(SqliteNames, HardLinkMadeDuringOpenIsRejected) {
  { (void)client().acquire("key"); }
  expect_in_child([&]() -> std::string {
    static sqlite3_vfs* original = nullptr;
    static std::filesystem::path existing;
    existing = path;
    original = sqlite3_vfs_find(nullptr);
    sqlite3_vfs linking = *original;
    linking.zName = "linking";
    linking.pNext = nullptr;
    linking.xOpen = [](sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* flags_out) {
      if ((flags & SQLITE_OPEN_MAIN_DB) != 0) std::filesystem::create_hard_link(existing, existing.string() + "-link");
      return original->xOpen(original, name, file, flags, flags_out);
    };
    sqlite3_vfs_register(&linking, 1);
    const auto message = rejection(path);
    sqlite3_vfs_unregister(&linking);
    return message.find("hard link") == std::string::npos ? "not rejected: " + message : "";
  });
}

TEST_F(SqliteNames, SymbolicLinkIsNoSecondName) {
  auto holder = client();
  const auto lease = holder.acquire("key", {.ttl = 10min});
  std::filesystem::create_directories(other_path.parent_path());
  std::filesystem::create_symlink(path, other_path);
  EXPECT_THAT(verdict(other_path), StartsWith("fine"));
  EXPECT_FALSE(is_granted(client_of(other_path).try_acquire("key")));
}

// Mounts the database at other_path, too, in a child process that alone sees the mount.
template <typename Function>
void with_mounted_file(const SqliteNames& test, const Function& function) {
  { (void)test.client().acquire("key"); }
  std::filesystem::create_directories(test.other_path.parent_path());
  std::ofstream(test.other_path).flush();
  expect_in_child([&]() -> std::string {
    if (!leave_mount_namespace()) return "this system does not allow a mount namespace, which this test needs";
    if (mount(test.path.c_str(), test.other_path.c_str(), nullptr, MS_BIND, nullptr) != 0) return "cannot mount a file";
    auto message = function();
    umount2(test.other_path.c_str(), MNT_DETACH);
    return message;
  });
}

TEST_F(SqliteNames, MountedFileIsRejected) {
  SYNCGUARD_NEEDS_ROOT();
  with_mounted_file(*this, [&]() -> std::string {
    if (const auto message = rejection(other_path); message.find("mount its folder") == std::string::npos) {
      return "not rejected as a mount point: " + message;
    }
    if (auto found = verdict(other_path); !found.starts_with("failure: the file itself is a mount point")) {
      return found;
    }
    return rejection(path) + (std::filesystem::exists(other_path.string() + "-wal") ? "the second name was used" : "");
  });
}

TEST_F(SqliteNames, MountedFileIsRejectedInASandboxWithoutStatx) {
  SYNCGUARD_NEEDS_ROOT();
  with_mounted_file(*this, [&]() -> std::string {
    if (!forbid_statx()) return "no sandbox";
    const auto message = rejection(other_path);
    return message.find("mount its folder") == std::string::npos ? "not rejected as a mount point: " + message : "";
  });
}

TEST_F(SqliteNames, MountedFolderIsAccepted) {
  SYNCGUARD_NEEDS_ROOT();
  with_mounted_file(*this, [&]() -> std::string {
    const auto mounted = folder.path() / "mounted";
    std::filesystem::create_directories(mounted);
    if (mount(path.parent_path().c_str(), mounted.c_str(), nullptr, MS_BIND, nullptr) != 0) return "cannot mount";
    auto holder = client();
    const auto lease = holder.acquire("key", {.ttl = 10min});
    auto other = client_of(mounted / "locks.db");
    std::string message = rejection(mounted / "locks.db");
    if (is_granted(other.try_acquire("key"))) message += "two holders";
    other.close();
    umount2(mounted.c_str(), MNT_DETACH);
    return message;
  });
}

TEST_F(SqliteNames, UnknownMountIsAcceptedWithAWarning) {
  SYNCGUARD_NEEDS_ROOT();
  with_mounted_file(*this, [&]() -> std::string {
    if (mount("tmpfs", "/proc", "tmpfs", 0, nullptr) != 0) return "cannot hide /proc";
    if (!forbid_statx()) return "no sandbox";
    auto message = rejection(path);
    if (const auto found = verdict(path); !found.starts_with("warning")) message += found;
    umount2("/proc", MNT_DETACH);
    return message;
  });
}

}  // namespace
}  // namespace syncguard::testing
