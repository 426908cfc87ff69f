#include "async/wake_up.hpp"

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

std::optional<std::chrono::milliseconds> Backend::clock_skew() const noexcept { return std::nullopt; }

asio::awaitable<std::vector<Finding>> Backend::diagnose(const CallLimits& limits) {
  async::expect_no_stop(limits.stop);
  std::vector<Finding> findings(1);
  findings[0].check = "backend";
  findings[0].found = capabilities().name + " has nothing to check";
  co_return findings;
}

asio::awaitable<std::string> Backend::setup(const CallLimits& /*limits*/) {
  co_return capabilities().name + " needs no set-up";
}

asio::awaitable<void> Backend::close(const CallLimits& /*limits*/) { co_return; }

}  // namespace syncguard
