#include <syncguard/memory.hpp>
#include <syncguard/testing/contract_suite.hpp>

#include <atomic>

namespace syncguard::testing {
namespace {

class MemoryFixture : public BackendFixture {
 public:
  std::unique_ptr<Backend> make_backend(const Setup& setup) override {
    return make_memory_backend({.store = store_, .cleanup_in_is_locked = setup.cleanup_in_is_locked});
  }

  // The system clock, plus the time that let_pass() has skipped.
  Timestamp now() override { return MemoryStore::system_now() + ahead_.load(); }
  void let_pass(std::chrono::milliseconds duration) override { ahead_ = ahead_.load() + duration; }

  void set_fence_counter(const Key& key, std::uint64_t value) override { store_->set_fence_counter(key, value); }
  std::uint64_t fence_counter(const Key& key) override { return store_->fence_counter(key); }
  void put(const LockRecord& record) override { store_->put(record); }
  std::size_t many_locks() override { return 10'000; }
  bool is_stored(const Key& key) override { return store_->stored(key).has_value(); }

 private:
  std::atomic<std::chrono::milliseconds> ahead_{std::chrono::milliseconds(0)};
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>([this] { return now(); });
};

SYNCGUARD_CONTRACT_SUITE(Memory, [] { return std::make_unique<MemoryFixture>(); });

}  // namespace
}  // namespace syncguard::testing
