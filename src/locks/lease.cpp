#include <syncguard/lease.hpp>

#include "locks/client.hpp"
#include "locks/lease_state.hpp"

#include <syncguard/async.hpp>

#include <utility>

namespace syncguard {
namespace {

asio::awaitable<void> dispose_in_background(std::shared_ptr<detail::LeaseState> state) {
  co_await detail::dispose_lease(std::move(state));
}

// What the destructor does. Throws nothing: dispose() turns what goes wrong into something to report.
void dispose(std::shared_ptr<detail::LeaseState> state) noexcept {
  if (!state) return;
  const auto client = state->client();
  if (client->is_forked()) {
    // The lock is the parent's, and the state may have been copied in the middle of a change: leave it alone.
    new std::shared_ptr<detail::LeaseState>(std::move(state));  // NOLINT(*-owning-memory): leaked on purpose
    new std::shared_ptr<detail::Client>(client);                // NOLINT(*-owning-memory): leaked on purpose
    return;
  }
  if (state->is_over()) return;
  if (client->must_not_block()) {
    async::spawn(client->executor(), dispose_in_background(std::move(state)));
  } else if (const auto error = async::run_blocking(client->executor(), state->dispose())) {
    state->report(*error);
  }
}

}  // namespace

Lease::Lease() noexcept = default;
Lease::Lease(std::shared_ptr<detail::LeaseState> state) noexcept : state_(std::move(state)) {}
Lease::Lease(Lease&&) noexcept = default;

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) dispose(std::exchange(state_, std::move(other.state_)));
  return *this;
}

Lease::~Lease() { dispose(std::move(state_)); }

Lease::operator bool() const noexcept { return state_ && !state_->is_over(); }

const Key& Lease::key() const noexcept { return state_->key(); }
const LockId& Lease::id() const noexcept { return state_->id(); }
Fence Lease::fence() const noexcept { return state_->fence(); }
Timestamp Lease::expires_at() const noexcept { return state_->expires_at(); }

std::chrono::milliseconds Lease::remaining() const noexcept {
  return state_ ? state_->remaining() : std::chrono::milliseconds(0);
}

std::chrono::nanoseconds Lease::deadline() const noexcept { return state_->deadline(); }

std::stop_token Lease::lost() const noexcept { return state_ ? state_->lost() : std::stop_token(); }

bool Lease::extend(std::chrono::milliseconds ttl, std::stop_token stop) {
  if (!state_) return false;
  return state_->client()->block_on("async_extend", [&] { return detail::extend_lease(state_, ttl, std::move(stop)); });
}

bool Lease::release(std::stop_token stop) {
  if (!state_) return false;
  return state_->client()->block_on("async_release", [&] { return detail::release_lease(state_, std::move(stop)); });
}

LockId Lease::detach() {
  state_->detach();
  return state_->id();
}

}  // namespace syncguard
