// The contract suite on the backend of examples/folder_backend.hpp.

#include "folder_backend.hpp"

#include <syncguard/registry.hpp>
#include <syncguard/testing/contract_suite.hpp>

#include <unistd.h>

namespace {

namespace sg = syncguard;

class FolderFixture : public sg::testing::BackendFixture {
 public:
  ~FolderFixture() override { std::filesystem::remove_all(folder_.path()); }

  std::unique_ptr<sg::Backend> make_backend(const Setup&) override {
    return std::make_unique<example::FolderBackend>(folder_.path());
  }
  sg::Timestamp now() override { return example::system_now(); }

  void set_fence_counter(const sg::Key& key, std::uint64_t value) override {
    const example::FolderLock lock(folder_);
    auto entry = folder_.read(key);
    entry.fence_counter = value;
    folder_.write(entry);
  }
  std::uint64_t fence_counter(const sg::Key& key) override {
    const example::FolderLock lock(folder_);
    return folder_.read(key).fence_counter;
  }
  void put(const sg::LockRecord& record) override {
    const example::FolderLock lock(folder_);
    auto entry = folder_.read(record.key);
    entry.record = record;
    folder_.write(entry);
  }
  bool is_stored(const sg::Key& key) override {
    const example::FolderLock lock(folder_);
    return folder_.read(key).record.has_value();
  }
  std::optional<std::string> url() override { return "folder:" + folder_.path().string(); }
  bool tells_waiters() override { return false; }
  bool can_clean_up() override { return false; }

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

}  // namespace
