#include "servers/firestore_emulator.hpp"

#include <syncguard/registry.hpp>
#include <syncguard/testing/contract_suite.hpp>

#include <atomic>
#include <string>

namespace syncguard::testing {
namespace {

using nlohmann::json;

// A new one takes seconds to start: all tests share it, each with a project of its own.
FirestoreEmulator& emulator() {
  static FirestoreEmulator instance;
  return instance;
}

class FirestoreFixture : public BackendFixture {
 public:
  FirestoreFixture() : project_(next_project()), outside_(emulator(), project_) {}

  std::unique_ptr<Backend> make_backend(const Setup& setup) override {
    BackendUrl url(emulator().url(project_, setup.cleanup_in_is_locked ? "&cleanup_in_is_locked=true" : ""));
    return syncguard::make_backend(url, {.log = setup.log});
  }
  Timestamp now() override { return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()); }

  void set_fence_counter(const Key& key, std::uint64_t value) override {
    outside_.put(counter_of(key), {{"fence", {{"stringValue", Fence(value).str()}}}});
  }
  std::uint64_t fence_counter(const Key& key) override {
    const auto counter = outside_.get(counter_of(key));
    return counter.is_null() ? 0 : Fence::parse(counter["fields"]["fence"]["stringValue"].get<std::string>()).value();
  }
  void put(const LockRecord& record) override {
    outside_.put(lock_of(record.key),
                 {{"lockId", {{"stringValue", record.lock_id.str()}}},
                  {"expiresAtMs", {{"integerValue", std::to_string(record.expires_at.time_since_epoch().count())}}},
                  {"acquiredAtMs", {{"integerValue", std::to_string(record.acquired_at.time_since_epoch().count())}}},
                  {"key", {{"stringValue", record.key.str()}}},
                  {"fence", {{"stringValue", record.fence.str()}}}});
  }
  bool is_stored(const Key& key) override { return !outside_.get(lock_of(key)).is_null(); }
  std::optional<std::string> url() override { return emulator().url(project_); }
  bool keeps_order() override { return false; }

 private:
  static std::string next_project() {
    static std::atomic<int> count{0};
    return "contract-" + std::to_string(++count);
  }
  static std::string lock_of(const Key& key) { return "locks/" + key.str(); }
  static std::string counter_of(const Key& key) { return "fence_counters/fence:" + key.str(); }

  const std::string project_;
  const FirestoreOutsider outside_;
};

SYNCGUARD_CONTRACT_SUITE(Firestore, [] { return std::make_unique<FirestoreFixture>(); });

}  // namespace
}  // namespace syncguard::testing
