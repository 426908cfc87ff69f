#include "support/stub_backend.hpp"

#include <syncguard/async.hpp>
#include <syncguard/locks.hpp>
#include <syncguard/memory.hpp>

#include <asio/use_future.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace syncguard {
namespace {

struct Seen {
  std::mutex mutex;
  std::set<std::string> ids;
  std::atomic<int> first_requests = 0;
  std::atomic<int> wrong_requests = 0;
};

// A store in memory that compares AcquireHints::id_is_new with the lock ids that it has seen.
class ChecksFirstRequests : public testing::StubBackend {
 public:
  explicit ChecksFirstRequests(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) {}

  asio::awaitable<AcquireReply> acquire(const AcquireRequest& request, const CallLimits& limits) override {
    const bool is_new = add(request.lock_id);
    if (is_new) ++seen_->first_requests;
    if (request.hints.id_is_new != is_new) ++seen_->wrong_requests;
    return inner_->acquire(request, limits);
  }
  asio::awaitable<ReleaseReply> release(const LockId& id, const CallLimits& limits) override {
    return inner_->release(id, limits);
  }
  asio::awaitable<std::unique_ptr<WaitTicket>> join(const AcquireRequest& request, std::function<void()> wake,
                                                    const CallLimits& limits) override {
    add(request.lock_id);
    if (request.hints.id_is_new) ++seen_->wrong_requests;
    return inner_->join(request, std::move(wake), limits);
  }

 private:
  bool add(const LockId& id) {
    const std::lock_guard lock(seen_->mutex);
    return seen_->ids.insert(id.str()).second;
  }

  const std::shared_ptr<Seen> seen_;
  const std::unique_ptr<Backend> inner_ = make_memory_backend({});
};

struct AcquireRequestTest : ::testing::Test {
  std::shared_ptr<Seen> seen = std::make_shared<Seen>();
  Locks locks{std::make_unique<ChecksFirstRequests>(seen)};
};

TEST_F(AcquireRequestTest, FirstAttemptsAreMarked) {
  EXPECT_TRUE(locks.try_acquire("key"));
  (void)locks.acquire("key");
  EXPECT_EQ(seen->first_requests, 2);
  EXPECT_EQ(seen->wrong_requests, 0);
}

// A waiter behind others of its client joins the queue before its first attempt.
TEST_F(AcquireRequestTest, AttemptsAfterJoiningAQueueAreNotMarked) {
  auto lease = locks.acquire("key");
  std::vector<std::future<Lease>> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(locks.async_acquire("key", {}, asio::use_future));
  EXPECT_TRUE(lease.release());
  for (auto& waiter : waiting) EXPECT_TRUE(waiter.get().release());
  EXPECT_EQ(seen->ids.size(), 5U);
  EXPECT_LT(seen->first_requests, 5) << "some must join before their first attempt";
  EXPECT_EQ(seen->wrong_requests, 0);
}

}  // namespace
}  // namespace syncguard
