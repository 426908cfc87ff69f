#include "support/expect_error.hpp"

#include <syncguard/forwarding_backend.hpp>

#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/use_future.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace syncguard {
namespace {

using namespace std::chrono_literals;

// Writes down which of its functions were called, with which arguments.
class RecordingBackend : public Backend {
 public:
  [[nodiscard]] Capabilities capabilities() const override {
    calls.emplace_back("capabilities");
    return {.name = "recording"};
  }
  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits&) override {
    calls.push_back("acquire " + request.key.str());
    co_return Contended{7ms};
  }
  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits&) override {
    calls.push_back("release " + id.str());
    co_return Released{};
  }
  asio::awaitable<ExtendReply> extend(const LockId& id, std::chrono::milliseconds ttl, const CallLimits&) override {
    calls.push_back("extend " + id.str() + " " + std::to_string(ttl.count()));
    co_return Missing::expired;
  }
  asio::awaitable<bool> is_locked(const Key& key, const CallLimits&) override {
    calls.push_back("is_locked " + key.str());
    co_return true;
  }
  asio::awaitable<std::optional<LockRecord>> lookup(const Key& key, const CallLimits&) override {
    calls.push_back("lookup " + key.str());
    co_return std::nullopt;
  }
  asio::awaitable<std::optional<LockRecord>> lookup(const LockId& id, const CallLimits&) override {
    calls.push_back("lookup " + id.str());
    co_return std::nullopt;
  }
  asio::awaitable<void> retract(const AcquireRequest& request, const CallLimits&) override {
    calls.push_back("retract " + request.key.str());
    co_return;
  }
  asio::awaitable<std::unique_ptr<WaitTicket>> join(const AcquireRequest& request, std::function<void()> wake,
                                                    const CallLimits&) override {
    calls.push_back("join " + request.key.str());
    wake();
    co_return nullptr;
  }
  asio::awaitable<std::vector<Finding>> diagnose(const CallLimits&) override {
    calls.emplace_back("diagnose");
    co_return std::vector<Finding>{};
  }
  asio::awaitable<std::string> setup(const CallLimits&) override {
    calls.emplace_back("setup");
    co_return std::string();
  }
  [[nodiscard]] std::string setup_script() const override {
    calls.emplace_back("setup_script");
    return {};
  }
  asio::awaitable<CleanupReply> clean_up(const CleanupRequest& request, const CallLimits&) override {
    calls.push_back("clean_up " + std::to_string(request.limit));
    co_return CleanupReply{};
  }
  asio::awaitable<LockPage> list(const ListRequest& request, const CallLimits&) override {
    calls.push_back("list " + request.prefix);
    co_return LockPage{};
  }
  asio::awaitable<KeyState> inspect(const Key& key, const CallLimits&) override {
    calls.push_back("inspect " + key.str());
    co_return KeyState{};
  }
  asio::awaitable<bool> break_lock(const Key& key, Fence fence, const CallLimits&) override {
    calls.push_back("break_lock " + key.str() + " " + fence.str());
    co_return true;
  }
  asio::awaitable<Fence> raise_fence(const Key& key, Fence fence, const CallLimits&) override {
    calls.push_back("raise_fence " + key.str() + " " + fence.str());
    co_return fence;
  }
  [[nodiscard]] std::optional<std::chrono::milliseconds> clock_skew() const noexcept override {
    calls.emplace_back("clock_skew");
    return 3ms;
  }
  [[nodiscard]] std::size_t connections() const noexcept override {
    calls.emplace_back("connections");
    return 5;
  }
  void on_locks_gone(std::function<void()> gone) override {
    calls.emplace_back("on_locks_gone");
    gone();
  }
  void closing_begins() noexcept override { calls.emplace_back("closing_begins"); }
  asio::awaitable<void> close(const CallLimits&) override {
    calls.emplace_back("close");
    co_return;
  }

  mutable std::vector<std::string> calls;
};

// A wrapper that changes nothing.
class Wrapper : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
};

template <typename Result>
auto run(asio::awaitable<Result> operation) {
  asio::io_context context;
  auto result = asio::co_spawn(context, std::move(operation), asio::use_future);
  context.run();
  return result.get();
}

TEST(ForwardingBackend, ForwardsEveryFunctionWithItsArguments) {
  const auto recording = std::make_shared<RecordingBackend>();
  Wrapper wrapper(recording);
  Backend& backend = wrapper;
  const Key key("key");
  const LockId id = LockId::generate();
  const AcquireRequest request{key, id, 30s};
  const CallLimits limits{};
  int wakes = 0;
  const auto count = [&] { ++wakes; };

  EXPECT_EQ(backend.capabilities().name, "recording");
  EXPECT_EQ(std::get<Contended>(run(backend.acquire(request, limits))).free_in, 7ms);
  EXPECT_TRUE(std::holds_alternative<Released>(run(backend.release(id, limits))));
  EXPECT_EQ(std::get<Missing>(run(backend.extend(id, 9ms, limits))), Missing::expired);
  EXPECT_TRUE(run(backend.is_locked(key, limits)));
  run(backend.lookup(key, limits));
  run(backend.lookup(id, limits));
  run(backend.retract(request, limits));
  run(backend.join(request, count, limits));
  run(backend.diagnose(limits));
  run(backend.setup(limits));
  EXPECT_EQ(backend.setup_script(), "");
  const CleanupRequest cleanup{.limit = 4};
  run(backend.clean_up(cleanup, limits));
  const ListRequest list{.prefix = "k"};
  run(backend.list(list, limits));
  run(backend.inspect(key, limits));
  EXPECT_TRUE(run(backend.break_lock(key, Fence(2), limits)));
  EXPECT_EQ(run(backend.raise_fence(key, Fence(2), limits)), Fence(2));
  EXPECT_EQ(backend.clock_skew(), 3ms);
  EXPECT_EQ(backend.connections(), 5U);
  backend.on_locks_gone(count);
  backend.closing_begins();
  run(backend.close(limits));

  EXPECT_EQ(wakes, 2);
  EXPECT_THAT(recording->calls,
              ::testing::ElementsAre("capabilities", "acquire key", "release " + id.str(), "extend " + id.str() + " 9",
                                     "is_locked key", "lookup key", "lookup " + id.str(), "retract key", "join key",
                                     "diagnose", "setup", "setup_script", "clean_up 4", "list k", "inspect key",
                                     "break_lock key 000000000000002", "raise_fence key 000000000000002", "clock_skew",
                                     "connections", "on_locks_gone", "closing_begins", "close"));
}

TEST(ForwardingBackend, RejectsNull) {
  testing::expect_error(ErrorCode::invalid_argument, [] { const Wrapper wrapper(nullptr); });
}

}  // namespace
}  // namespace syncguard
