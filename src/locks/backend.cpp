#include <syncguard/backend.hpp>

namespace syncguard {

WaitTicket::~WaitTicket() = default;
Backend::~Backend() = default;

asio::awaitable<void> Backend::retract(const AcquireRequest& request, const CallLimits& limits) {
  co_await release(request.lock_id, limits);
}

asio::awaitable<std::unique_ptr<WaitTicket>> Backend::join(const Key& /*key*/, const LockId& /*waiter*/,
                                                           std::function<void()> /*wake*/,
                                                           const CallLimits& /*limits*/) {
  co_return nullptr;
}

asio::awaitable<void> Backend::close(const CallLimits& /*limits*/) { co_return; }

}  // namespace syncguard
