#include <syncguard/testing/contract_suite.hpp>

#include "contract/parts.hpp"

#include <thread>

namespace syncguard::testing {

BackendFixture::~BackendFixture() = default;

void BackendFixture::let_pass(std::chrono::milliseconds duration) { std::this_thread::sleep_for(duration); }
std::optional<std::string> BackendFixture::url() { return std::nullopt; }
bool BackendFixture::wakes_waiters() { return true; }
bool BackendFixture::keeps_order() { return wakes_waiters(); }
bool BackendFixture::can_clean_up() { return true; }
bool BackendFixture::stores_labels() { return true; }
bool BackendFixture::supports_administration() { return true; }
std::size_t BackendFixture::many_locks() { return 300; }
TimeAuthority BackendFixture::time_authority() { return TimeAuthority::server; }
std::shared_ptr<void> BackendFixture::silence() { return nullptr; }

Contract::Contract() : fixture_(GetParam().make_fixture()) {}
Contract::~Contract() = default;

inline namespace v0_1 {

bool contract_suite_is_linked() {
  return parts::operations && parts::fences && parts::input && parts::cancellation && parts::waiting && parts::leases &&
         parts::observation && parts::visibility;
}

}  // namespace v0_1
}  // namespace syncguard::testing
