#include <syncguard/forwarding_backend.hpp>

#include "locks/outcome.hpp"

#include <utility>

namespace syncguard {
inline namespace v0_1 {

ForwardingBackend::ForwardingBackend(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {
  if (!inner_) throw LockError(ErrorCode::invalid_argument, "a wrapper needs a backend, not null");
}

ForwardingBackend::~ForwardingBackend() = default;

detail::LeaseObserver* detail::lease_observer_of(Backend& backend) noexcept {
  if (auto* const observer = dynamic_cast<LeaseObserver*>(&backend)) return observer;
  const auto* const wrapper = dynamic_cast<ForwardingBackend*>(&backend);
  return wrapper != nullptr ? lease_observer_of(wrapper->inner()) : nullptr;
}

Capabilities ForwardingBackend::capabilities() const { return inner_->capabilities(); }

asio::awaitable<AcquireReply> ForwardingBackend::acquire(const AcquireRequest& request, const CallLimits& limits) {
  return inner_->acquire(request, limits);
}

asio::awaitable<ReleaseReply> ForwardingBackend::release(const LockId& id, const CallLimits& limits) {
  return inner_->release(id, limits);
}

asio::awaitable<ExtendReply> ForwardingBackend::extend(const LockId& id, std::chrono::milliseconds ttl,
                                                       const CallLimits& limits) {
  return inner_->extend(id, ttl, limits);
}

asio::awaitable<bool> ForwardingBackend::is_locked(const Key& key, const CallLimits& limits) {
  return inner_->is_locked(key, limits);
}

asio::awaitable<std::optional<LockRecord>> ForwardingBackend::lookup(const Key& key, const CallLimits& limits) {
  return inner_->lookup(key, limits);
}

asio::awaitable<std::optional<LockRecord>> ForwardingBackend::lookup(const LockId& id, const CallLimits& limits) {
  return inner_->lookup(id, limits);
}

asio::awaitable<void> ForwardingBackend::retract(const AcquireRequest& request, const CallLimits& limits) {
  return inner_->retract(request, limits);
}

asio::awaitable<std::unique_ptr<WaitTicket>> ForwardingBackend::join(const AcquireRequest& request,
                                                                     std::function<void()> wake,
                                                                     const CallLimits& limits) {
  return inner_->join(request, std::move(wake), limits);
}

asio::awaitable<std::vector<Finding>> ForwardingBackend::diagnose(const CallLimits& limits) {
  return inner_->diagnose(limits);
}

asio::awaitable<std::string> ForwardingBackend::setup(const CallLimits& limits) { return inner_->setup(limits); }

std::string ForwardingBackend::setup_script() const { return inner_->setup_script(); }

asio::awaitable<CleanupReply> ForwardingBackend::clean_up(const CleanupRequest& request, const CallLimits& limits) {
  return inner_->clean_up(request, limits);
}

asio::awaitable<LockPage> ForwardingBackend::list(const ListRequest& request, const CallLimits& limits) {
  return inner_->list(request, limits);
}

asio::awaitable<KeyState> ForwardingBackend::inspect(const Key& key, const CallLimits& limits) {
  return inner_->inspect(key, limits);
}

asio::awaitable<bool> ForwardingBackend::break_lock(const Key& key, Fence fence, const CallLimits& limits) {
  return inner_->break_lock(key, fence, limits);
}

asio::awaitable<Fence> ForwardingBackend::raise_fence(const Key& key, Fence fence, const CallLimits& limits) {
  return inner_->raise_fence(key, fence, limits);
}

std::optional<std::chrono::milliseconds> ForwardingBackend::clock_skew() const noexcept { return inner_->clock_skew(); }

std::size_t ForwardingBackend::connections() const noexcept { return inner_->connections(); }

void ForwardingBackend::on_locks_gone(std::function<void()> gone) { inner_->on_locks_gone(std::move(gone)); }

void ForwardingBackend::closing_begins() noexcept { inner_->closing_begins(); }

asio::awaitable<void> ForwardingBackend::close(const CallLimits& limits) { return inner_->close(limits); }

}  // namespace v0_1
}  // namespace syncguard
