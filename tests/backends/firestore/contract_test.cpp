#include "rest_client.hpp"

#include <syncguard/registry.hpp>
#include <syncguard/testing/contract_suite.hpp>

#include <string>

namespace syncguard::testing {
namespace {

class FirestoreFixture : public BackendFixture {
 public:
  FirestoreFixture() : project_(next_project()), outside_(shared_emulator(), project_) {}

  std::unique_ptr<Backend> make_backend(const Setup& setup) override {
    BackendUrl url(shared_emulator().url(project_, setup.cleanup_in_is_locked ? "&cleanup_in_is_locked=true" : ""));
    return syncguard::make_backend(url, {.log = setup.log});
  }
  Timestamp now() override { return system_now(); }

  void set_fence_counter(const Key& key, std::uint64_t value) override {
    outside_.put(counter_of(key), {{"fence", text_value(Fence(value).str())}});
  }
  std::uint64_t fence_counter(const Key& key) override {
    const auto counter = outside_.get(counter_of(key));
    return counter.is_null() ? 0 : Fence::parse(counter["fields"]["fence"]["stringValue"].get<std::string>()).value();
  }
  void put(const LockRecord& record) override { outside_.put(lock_of(record.key), fields_of_lock(record)); }
  bool is_stored(const Key& key) override { return !outside_.get(lock_of(key)).is_null(); }
  std::optional<std::string> url() override { return shared_emulator().url(project_); }
  bool keeps_order() override { return false; }
  TimeAuthority time_authority() override { return TimeAuthority::client; }
  std::shared_ptr<void> silence() override {
    shared_emulator().pause();
    return {this, [](void*) { shared_emulator().resume(); }};
  }

 private:
  static std::string lock_of(const Key& key) { return "locks/" + key.str(); }
  static std::string counter_of(const Key& key) { return "fence_counters/fence:" + key.str(); }

  const std::string project_;
  const FirestoreRestClient outside_;
};

SYNCGUARD_CONTRACT_SUITE(Firestore, [] { return std::make_unique<FirestoreFixture>(); });

}  // namespace
}  // namespace syncguard::testing
