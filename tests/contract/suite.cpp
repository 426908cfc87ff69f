#include <syncguard/testing/contract_suite.hpp>

#include "contract/parts.hpp"

#include <thread>

namespace syncguard::testing {

BackendFixture::~BackendFixture() = default;

void BackendFixture::let_pass(std::chrono::milliseconds duration) { std::this_thread::sleep_for(duration); }
std::optional<std::string> BackendFixture::url() { return std::nullopt; }
bool BackendFixture::tells_waiters() { return true; }
bool BackendFixture::keeps_order() { return tells_waiters(); }
bool BackendFixture::can_clean_up() { return true; }

Contract::Contract() : fixture_(GetParam().make_fixture()) {}
Contract::~Contract() = default;

bool contract_suite_is_linked() {
  return parts::operations && parts::fences && parts::input && parts::cancellation && parts::waiting && parts::leases &&
         parts::observation;
}

}  // namespace syncguard::testing
