// A backend without a store, for tests of one operation: override that one.
#pragma once

#include <syncguard/backend.hpp>

#include <chrono>
#include <optional>

namespace syncguard::testing {

class StubBackend : public Backend {
 public:
  [[nodiscard]] Capabilities capabilities() const override { return {.name = "stub"}; }
  asio::awaitable<AcquireReply> acquire(const AcquireRequest&, const CallLimits&) override { co_return Contended{}; }
  asio::awaitable<ReleaseReply> release(const LockId&, const CallLimits&) override { co_return Missing::not_found; }
  asio::awaitable<ExtendReply> extend(const LockId&, std::chrono::milliseconds, const CallLimits&) override {
    co_return Missing::not_found;
  }
  asio::awaitable<bool> is_locked(const Key&, const CallLimits&) override { co_return false; }
  asio::awaitable<std::optional<LockRecord>> lookup(const Key&, const CallLimits&) override { co_return std::nullopt; }
  asio::awaitable<std::optional<LockRecord>> lookup(const LockId&, const CallLimits&) override {
    co_return std::nullopt;
  }
};

}  // namespace syncguard::testing
