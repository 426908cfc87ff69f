// The contract suite on the backend of examples/folder_backend.hpp.

#include "folder_backend.hpp"

#include <syncguard/locks.hpp>
#include <syncguard/registry.hpp>
#include <syncguard/testing/contract_suite.hpp>

#include <unistd.h>

#include <thread>

namespace {

namespace sg = syncguard;

// Waits for the lock of the folder, which is never held for long.
struct Locked : example::FolderLock {
  explicit Locked(const example::Folder& folder) : FolderLock(folder) {
    while (!try_lock()) std::this_thread::yield();
  }
};

class FolderFixture : public sg::testing::BackendFixture {
 public:
  ~FolderFixture() override { std::filesystem::remove_all(folder_.path()); }

  std::unique_ptr<sg::Backend> make_backend(const Setup&) override {
    return std::make_unique<example::FolderBackend>(folder_.path());
  }
  sg::Timestamp now() override { return example::system_now(); }

  void set_fence_counter(const sg::Key& key, std::uint64_t value) override {
    const Locked locked(folder_);
    auto entry = folder_.read(key);
    entry.fence_counter = value;
    folder_.write(entry);
  }
  std::uint64_t fence_counter(const sg::Key& key) override {
    const Locked locked(folder_);
    return folder_.read(key).fence_counter;
  }
  void put(const sg::LockRecord& record) override {
    const Locked locked(folder_);
    auto entry = folder_.read(record.key);
    entry.record = record;
    folder_.write(entry);
  }
  bool is_stored(const sg::Key& key) override {
    const Locked locked(folder_);
    return folder_.read(key).record.has_value();
  }
  std::optional<std::string> url() override { return "folder:" + folder_.path().string(); }
  bool wakes_waiters() override { return false; }
  bool can_clean_up() override { return false; }
  bool supports_administration() override { return false; }

 private:
  static std::filesystem::path new_path() {
    static int count = 0;
    return std::filesystem::temp_directory_path() /
           ("syncguard-folder-" + std::to_string(getpid()) + "-" + std::to_string(count++));
  }

  const example::Folder folder_{new_path()};
};

[[maybe_unused]] const bool registered = [] {
  sg::register_backend("folder", [](sg::BackendUrl& url, const sg::BackendContext&) {
    return std::make_unique<example::FolderBackend>(sg::BackendUrl::decode(url.rest()));
  });
  return true;
}();

SYNCGUARD_CONTRACT_SUITE(Folder, [] { return std::make_unique<FolderFixture>(); });

// The suite itself cannot make this store hang.
TEST(FolderBackend, EndsByDeadlineWhileFolderIsLocked) {
  const example::Folder folder(std::filesystem::temp_directory_path() / ("syncguard-kept-" + std::to_string(getpid())));
  {
    const Locked kept(folder);
    sg::Locks locks(std::make_unique<example::FolderBackend>(folder.path()),
                    {.operation_timeout = std::chrono::milliseconds(50)});
    try {
      (void)locks.try_acquire("key");
      FAIL() << "the acquire must not succeed while the folder is locked";
    } catch (const sg::LockError& error) {
      EXPECT_EQ(error.code(), sg::ErrorCode::network_timeout);
      EXPECT_FALSE(error.in_doubt());
    }
  }
  std::filesystem::remove_all(folder.path());
}

}  // namespace
