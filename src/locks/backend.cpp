#include "async/event.hpp"

#include <syncguard/backend.hpp>

namespace syncguard {
inline namespace v0_1 {

WaitTicket::~WaitTicket() = default;
std::optional<std::chrono::milliseconds> WaitTicket::free_in() const noexcept { return std::nullopt; }
bool WaitTicket::notices_expiry() const noexcept { return false; }
Backend::~Backend() = default;

void detail::destroy(Backend* backend) noexcept { delete backend; }

asio::awaitable<void> Backend::retract(const AcquireRequest& request, const CallLimits& limits) {
  co_await release(request.lock_id, limits);
}

asio::awaitable<std::unique_ptr<WaitTicket>> Backend::join(const AcquireRequest& /*request*/,
                                                           std::function<void()> /*wake*/,
                                                           const CallLimits& /*limits*/) {
  co_return nullptr;
}

std::optional<std::chrono::milliseconds> Backend::clock_skew() const noexcept { return std::nullopt; }

std::size_t Backend::connections() const noexcept { return 0; }

void Backend::on_locks_gone(std::function<void()> /*gone*/) {}

void Backend::closing_begins() noexcept {}

asio::awaitable<std::vector<Finding>> Backend::diagnose(const CallLimits& limits) {
  async::expect_no_stop(limits.stop);
  std::vector<Finding> findings(1);
  findings[0].check = "backend";
  findings[0].found = capabilities().name + " has nothing to check";
  co_return findings;
}

asio::awaitable<std::string> Backend::setup(const CallLimits& /*limits*/) {
  co_return capabilities().name + " needs no setup";
}

std::string Backend::setup_script() const { return {}; }

asio::awaitable<CleanupReply> Backend::clean_up(const CleanupRequest& /*request*/, const CallLimits& limits) {
  async::expect_no_stop(limits.stop);
  CleanupReply reply;
  reply.nothing_to_do = capabilities().name + " removes expired locks by itself, or when they are acquired again";
  co_return reply;
}

namespace {

LockError unsupported(const Backend& backend, const char* what) {
  return LockError(ErrorCode::invalid_argument, backend.capabilities().name + " does not support " + what);
}

}  // namespace

asio::awaitable<LockPage> Backend::list(const ListRequest& /*request*/, const CallLimits& /*limits*/) {
  throw unsupported(*this, "listing locks");
  co_return LockPage();
}

asio::awaitable<KeyState> Backend::inspect(const Key& /*key*/, const CallLimits& /*limits*/) {
  throw unsupported(*this, "inspecting keys");
  co_return KeyState();
}

asio::awaitable<bool> Backend::break_lock(const Key& /*key*/, Fence /*fence*/, const CallLimits& /*limits*/) {
  throw unsupported(*this, "breaking locks");
  co_return false;
}

asio::awaitable<Fence> Backend::raise_fence(const Key& /*key*/, Fence /*fence*/, const CallLimits& /*limits*/) {
  throw unsupported(*this, "raising fence counters");
  co_return Fence();
}

asio::awaitable<void> Backend::close(const CallLimits& /*limits*/) { co_return; }

}  // namespace v0_1
}  // namespace syncguard
