#include "support/stub_backend.hpp"

#include <syncguard/async.hpp>
#include <syncguard/locks.hpp>

#include <asio/use_future.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

namespace syncguard {
namespace {

// Records for each acquire whether it may block, and grants every second one.
class RecordingBackend : public testing::StubBackend {
 public:
  explicit RecordingBackend(std::shared_ptr<std::vector<bool>> may_block) : may_block_(std::move(may_block)) {}

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    may_block_->push_back(limits.may_block());
    if (may_block_->size() % 2 == 1) co_return Contended{std::chrono::milliseconds(1)};
    co_return Granted{.fence = Fence(may_block_->size()), .expires_at = {}, .remaining = request.ttl};
  }
  asio::awaitable<ReleaseReply> release(const LockId&, const CallLimits&) override { co_return Released{}; }

 private:
  const std::shared_ptr<std::vector<bool>> may_block_;
};

struct CallLimitsTest : ::testing::Test {
  std::shared_ptr<std::vector<bool>> may_block = std::make_shared<std::vector<bool>>();
  Locks locks{std::make_unique<RecordingBackend>(may_block)};
};

// After a wait the operation continues on the I/O thread, which must not be blocked.
TEST_F(CallLimitsTest, OnlyFirstAttemptOfBlockingCallMayBlock) {
  (void)locks.acquire("key");
  EXPECT_EQ(*may_block, std::vector({true, false}));
}

TEST_F(CallLimitsTest, AsynchronousCallMayNotBlock) {
  (void)locks.async_acquire("key", {}, asio::use_future).get();
  EXPECT_EQ(*may_block, std::vector({false, false}));
}

TEST(CallLimits, DefaultMayNotBlock) { EXPECT_FALSE(CallLimits().may_block()); }

}  // namespace
}  // namespace syncguard
