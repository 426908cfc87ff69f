// The tests that every backend must pass, for backends of your own too: implement a BackendFixture, write
//
//   SYNCGUARD_CONTRACT_SUITE(MyBackend, [] { return std::make_unique<MyFixture>(); });
//
// in a program that links SyncGuard::contract_suite and GTest::gtest_main, and run it.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/log.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

namespace syncguard::testing {

// How the suite reaches a store. Each test has a fixture of its own, whose keys no other test sees.
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

  // Another client of the same store.
  virtual std::unique_ptr<Backend> make_backend(const Setup& setup) = 0;

  // The time by which the store decides.
  virtual Timestamp now() = 0;
  // Lets that much of it pass. By default sleeps; a store with a clock of its own can jump.
  virtual void let_pass(std::chrono::milliseconds duration);

  // Reaching behind the backend's back, into the store.
  virtual void set_fence_counter(const Key& key, std::uint64_t value) = 0;
  virtual std::uint64_t fence_counter(const Key& key) = 0;
  virtual void put(const LockRecord& record) = 0;
  // Whether anything is stored at the key's place, live or not.
  virtual bool is_stored(const Key& key) = 0;

  // A URL by which another process can reach the same part of the store; nothing if none can.
  virtual std::optional<std::string> url();
  // Whether waiters are told when a key becomes free. Where they are not, the suite asks for progress only.
  virtual bool tells_waiters();
  // Whether waiters of different clients are served in the order in which they came. By default where they are told.
  virtual bool keeps_order();
  // Whether is_locked removes what is long dead when the setup asks for it.
  virtual bool can_clean_up();
};

struct BackendUnderTest {
  std::string name;
  std::function<std::unique_ptr<BackendFixture>()> make_fixture;

  friend std::ostream& operator<<(std::ostream& stream, const BackendUnderTest& backend) {
    return stream << backend.name;
  }
};

// The base of all tests of the suite.
class Contract : public ::testing::TestWithParam<BackendUnderTest> {
 protected:
  Contract();
  ~Contract() override;

  BackendFixture& store() { return *fixture_; }

 private:
  std::unique_ptr<BackendFixture> fixture_;
};

// Makes the linker keep the tests, which nothing else refers to.
bool contract_suite_is_linked();

}  // namespace syncguard::testing

#define SYNCGUARD_CONTRACT_SUITE(name, ...)                                                                   \
  [[maybe_unused]] static const bool syncguard_links_##name = syncguard::testing::contract_suite_is_linked(); \
  using syncguard::testing::Contract;                                                                         \
  INSTANTIATE_TEST_SUITE_P(name, Contract, ::testing::Values(syncguard::testing::BackendUnderTest{#name, __VA_ARGS__}))
