#include <syncguard/lease.hpp>

#include "locks/block.hpp"
#include "locks/client.hpp"
#include "locks/lease_state.hpp"

#include <syncguard/async.hpp>

#include <new>
#include <optional>
#include <utility>

namespace syncguard {
inline namespace v0_1 {
namespace {

// Releases as the destructor does, and reports an error. Returns what it reported. Does not throw:
// LeaseState::dispose() returns errors.
std::optional<LockError> dispose(std::shared_ptr<detail::LeaseState> state) noexcept {
  if (!state) return std::nullopt;
  const auto client = state->client();
  if (client->is_forked()) {
    // The lock belongs to the parent, and the fork may have copied the state in the middle of a change.
    new std::shared_ptr<detail::LeaseState>(std::move(state));  // NOLINT(*-owning-memory): leaked on purpose
    return std::nullopt;
  }
  auto closing = detail::Client::Closing::wait;
  if (state->drop_client_if_over(closing)) return std::nullopt;
  std::optional<LockError> error;
  try {
    if (client->must_not_block()) {
      detail::LeaseState::start_disposal(state);
    } else {
      error = async::run_blocking(client->executor(), detail::LeaseState::dispose(state, std::this_thread::get_id()));
      if (error) state->report(*error);
      // After an error, dispose() has used up the time for waiting.
      if (error || !state->is_over()) closing = detail::Client::Closing::in_background;
    }
  } catch (const std::bad_alloc&) {
    state->dispose_later();
    closing = detail::Client::Closing::in_background;
  }
  state->drop_client(closing);
  return error;
}

}  // namespace

std::string_view to_string(LossReason reason) noexcept {
  switch (reason) {
    case LossReason::expired:
      return "expired";
    case LossReason::max_hold:
      return "max-hold";
    case LossReason::removed:
      return "removed";
    case LossReason::store_lost:
      return "store-lost";
    case LossReason::client_closed:
      return "client-closed";
  }
  return "";
}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  client_ = other.client_;
  (void)syncguard::dispose(std::exchange(state_, std::move(other.state_)));
  return *this;
}

void Lease::dispose() noexcept { (void)syncguard::dispose(std::move(state_)); }

void detail::LeaseAccess::deliver(Lease& lease) noexcept {
  if (lease.state_) lease.client_ = lease.state_->client();
}

Lease::operator bool() const& noexcept { return state_ && !state_->is_over(); }

const Key& Lease::key() const noexcept { return state_->key(); }
const LockId& Lease::id() const noexcept { return state_->id(); }
Fence Lease::fence() const noexcept { return state_->fence(); }
Timestamp Lease::expires_at() const noexcept { return state_->expires_at(); }

std::chrono::milliseconds Lease::remaining() const noexcept {
  return state_ ? state_->remaining() : std::chrono::milliseconds(0);
}

BootClock::time_point Lease::deadline() const noexcept { return state_->deadline(); }

std::optional<LossReason> Lease::lost_reason() const noexcept { return state_ ? state_->loss_reason() : std::nullopt; }

std::stop_token Lease::lost() const noexcept { return state_ ? state_->lost() : std::stop_token(); }

bool Lease::extend(std::chrono::milliseconds ttl, std::stop_token stop) {
  if (!state_) return false;
  return detail::block(state_->client(), detail::ExtendLease{state_, ttl}, std::move(stop));
}

bool Lease::release(std::stop_token stop) {
  if (!state_) return false;
  const bool released = detail::block(state_->client(), detail::ReleaseLease{state_}, std::move(stop));
  state_->drop_client_if_over(detail::Client::Closing::wait);
  return released;
}

bool Lease::release_with_retries(std::stop_token stop) {
  if (!state_) return false;
  const bool released = detail::block(state_->client(), detail::ReleaseLeaseWithRetries{state_}, std::move(stop));
  state_->drop_client_if_over(detail::Client::Closing::wait);
  return released;
}

LockId Lease::detach() {
  state_->client()->refuse_in_child();
  state_->detach();
  state_->drop_client(detail::Client::Closing::wait);
  return state_->id();
}

void detail::end_section(Lease lease, IfLost if_lost) {
  const auto state = LeaseAccess::take(lease);
  const auto reported = syncguard::dispose(state);
  if (!state || state->client()->is_forked() || !state->lock_was_lost()) return;
  if (!reported || reported->code() != ErrorCode::lock_lost) state->report(state->lock_lost());
  if (if_lost == IfLost::fail) throw state->lock_lost();
}

void detail::end_section_after_exception(Lease lease) noexcept {
  try {
    end_section(std::move(lease), IfLost::report);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the exception of the section is more important
  }
}

}  // namespace v0_1
}  // namespace syncguard
