/// \file
/// The tests that every backend must pass, including your own: implement a BackendFixture, write
///
///     SYNCGUARD_CONTRACT_SUITE(MyBackend, [] { return std::make_unique<MyFixture>(); });
///
/// in a program that links SyncGuard::contract_suite and GTest::gtest_main, and run it.
#pragma once

#include <syncguard/backend_fwd.hpp>
#include <syncguard/capabilities.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/log.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

namespace syncguard::testing {
inline namespace v0_1 {

/// The suite's access to a store. Each test has its own fixture, whose keys no other test sees.
class BackendFixture {
 public:
  struct Setup {
    bool cleanup_in_is_locked = false;
    Log log{};
  };

  BackendFixture() = default;
  BackendFixture(const BackendFixture&) = delete;
  BackendFixture& operator=(const BackendFixture&) = delete;
  virtual ~BackendFixture();

  /// Creates another client of the same store.
  virtual std::unique_ptr<Backend> make_backend(const Setup& setup) = 0;

  /// The time of the store's time authority, and which clock that is: by default the server's.
  virtual Timestamp now() = 0;
  virtual TimeAuthority time_authority();
  /// Waits for that long on this clock. By default sleeps; a store with its own clock can advance it.
  virtual void let_pass(std::chrono::milliseconds duration);

  /// Direct access to the store, bypassing the backend.
  virtual void set_fence_counter(const Key& key, std::uint64_t value) = 0;
  virtual std::uint64_t fence_counter(const Key& key) = 0;
  virtual void put(const LockRecord& record) = 0;
  /// Whether anything is stored for the key, live or not.
  virtual bool is_stored(const Key& key) = 0;

  /// A URL by which another process can reach the same part of the store; nullopt if none can.
  virtual std::optional<std::string> url();
  /// Whether waiters are woken when a key becomes free. If not, the suite only requires progress.
  virtual bool wakes_waiters();
  /// Whether waiters of different clients are served in order. By default, if they are woken.
  virtual bool keeps_order();
  /// Whether locks carry the label of their holder.
  virtual bool stores_labels();
  /// Whether is_locked removes locks that expired long ago if the setup enables it.
  virtual bool can_clean_up();
  /// Whether the backend implements list, inspect, break_lock and raise_fence. By default it must.
  virtual bool supports_administration();
  /// How many locks a test of long lists creates: by default 300. Thousands, if that takes no more than a second.
  virtual std::size_t many_locks();
  /// Prevents the store from replying to writes, and if possible to reads, until the returned object is destroyed.
  /// Null, the default, if that is impossible: then requests are only stopped while the store responds.
  virtual std::shared_ptr<void> silence();
};

struct BackendUnderTest {
  std::string name;
  std::function<std::unique_ptr<BackendFixture>()> make_fixture;

  friend std::ostream& operator<<(std::ostream& stream, const BackendUnderTest& backend) {
    return stream << backend.name;
  }
};

/// The base of all tests of the suite.
class Contract : public ::testing::TestWithParam<BackendUnderTest> {
 protected:
  Contract();
  ~Contract() override;

  BackendFixture& store() { return *fixture_; }

 private:
  std::unique_ptr<BackendFixture> fixture_;
};

/// Makes the linker keep the tests, which nothing else references.
bool contract_suite_is_linked();

}  // namespace v0_1
}  // namespace syncguard::testing

#define SYNCGUARD_CONTRACT_SUITE(name, ...)                                                                   \
  [[maybe_unused]] static const bool syncguard_links_##name = syncguard::testing::contract_suite_is_linked(); \
  using syncguard::testing::Contract;                                                                         \
  INSTANTIATE_TEST_SUITE_P(name, Contract, ::testing::Values(syncguard::testing::BackendUnderTest{#name, __VA_ARGS__}))
