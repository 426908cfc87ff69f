#include <syncguard/backend.hpp>
#include <syncguard/memory.hpp>
#include <syncguard/testing/contract_suite.hpp>
#include <syncguard/testing/fault_injection.hpp>

#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/use_future.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <variant>

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

// The same behind an injected network, which can hold requests back.
class MemoryBehindNetworkFixture : public MemoryFixture {
 public:
  std::unique_ptr<Backend> make_backend(const Setup& setup) override {
    return with_faults(MemoryFixture::make_backend(setup), network_);
  }

  std::shared_ptr<void> silence() override {
    Gate gate;
    for (const auto operation : operations) network_.always(operation, Fault::hold(gate));
    return {this, [this, gate](void*) mutable {
              for (const auto operation : operations) network_.clear(operation);
              gate.open();
            }};
  }

 private:
  static constexpr std::array operations{Operation::acquire,   Operation::release, Operation::extend,
                                         Operation::is_locked, Operation::lookup,  Operation::join,
                                         Operation::leave,     Operation::retract, Operation::inspect};

  FaultControl network_;
};

TEST(MemoryBackend, RepeatedAcquireAfterClockWasSetBackGrantsNoMoreThanTtl) {
  using namespace std::chrono_literals;
  std::chrono::milliseconds ahead = 1h;
  const auto backend =
      make_memory_backend({.store = std::make_shared<MemoryStore>([&] { return MemoryStore::system_now() + ahead; })});
  asio::io_context context;
  const AcquireRequest request{.key = "key", .lock_id = LockId::generate(), .ttl = 30s};
  const CallLimits limits;
  const auto remaining = [&] {
    auto reply = asio::co_spawn(context, backend->acquire(request, limits), asio::use_future);
    context.restart();
    context.run();
    return std::get<Granted>(reply.get()).remaining;
  };
  EXPECT_EQ(remaining(), 30s);
  ahead = 0h;
  EXPECT_EQ(remaining(), 30s);
}

SYNCGUARD_CONTRACT_SUITE(Memory, [] { return std::make_unique<MemoryFixture>(); });
SYNCGUARD_CONTRACT_SUITE(MemoryBehindNetwork, [] { return std::make_unique<MemoryBehindNetworkFixture>(); });

}  // namespace
}  // namespace syncguard::testing
