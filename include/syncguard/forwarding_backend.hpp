/// \file
/// The base of backends that wrap another one.
#pragma once

#include <syncguard/backend.hpp>
#include <syncguard/export.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace syncguard {
inline namespace v0_1 {

namespace detail {
class LeaseObserver;
// The backend, or the outermost one that it wraps, that wants the events of leases; null if there is none.
LeaseObserver* lease_observer_of(Backend& backend) noexcept;
}  // namespace detail

/// Forwards every function to another backend. Derive from it and override what the wrapper changes: a function that is
/// added to Backend later is then forwarded, too, instead of getting a default that hides the inner backend.
class SYNCGUARD_EXPORT ForwardingBackend : public Backend {
 public:
  /// Throws LockError(invalid_argument) if inner is null.
  explicit ForwardingBackend(std::shared_ptr<Backend> inner);
  ~ForwardingBackend() override;

  [[nodiscard]] Capabilities capabilities() const override;
  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override;
  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override;
  asio::awaitable<ExtendReply> extend(const LockId& id, std::chrono::milliseconds ttl,
                                      const CallLimits& limits) override;
  asio::awaitable<bool> is_locked(const Key& key, const CallLimits& limits) override;
  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits& limits) override;
  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits& limits) override;
  asio::awaitable<void> retract(const AcquireRequest& request, const CallLimits& limits) override;
  asio::awaitable<std::unique_ptr<WaitTicket>> join(const AcquireRequest& request, std::function<void()> wake,
                                                    const CallLimits& limits) override;
  asio::awaitable<std::vector<Finding>> diagnose(const CallLimits& limits) override;
  asio::awaitable<std::string> setup(const CallLimits& limits) override;
  [[nodiscard]] std::string setup_script() const override;
  asio::awaitable<CleanupReply> clean_up(const CleanupRequest& request, const CallLimits& limits) override;
  asio::awaitable<LockPage> list(const ListRequest& request, const CallLimits& limits) override;
  asio::awaitable<KeyState> inspect(const Key& key, const CallLimits& limits) override;
  asio::awaitable<bool> break_lock(const Key& key, Fence fence, const CallLimits& limits) override;
  asio::awaitable<Fence> raise_fence(const Key& key, Fence fence, const CallLimits& limits) override;
  [[nodiscard]] std::optional<std::chrono::milliseconds> clock_skew() const noexcept override;
  [[nodiscard]] std::size_t connections() const noexcept override;
  void on_locks_gone(std::function<void()> gone) override;
  void closing_begins() noexcept override;
  asio::awaitable<void> close(const CallLimits& limits) override;

 protected:
  [[nodiscard]] Backend& inner() const noexcept { return *inner_; }
  /// For a request that goes on when its caller has given up.
  [[nodiscard]] const std::shared_ptr<Backend>& shared_inner() const noexcept { return inner_; }

 private:
  friend detail::LeaseObserver* detail::lease_observer_of(Backend& backend) noexcept;

  const std::shared_ptr<Backend> inner_;
};

}  // namespace v0_1
}  // namespace syncguard
