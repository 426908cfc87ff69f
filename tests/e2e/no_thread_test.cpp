// A system that cannot start another thread.

#include "e2e/faulty_client.hpp"
#include "support/no_threads.hpp"
#include "support/thread_count.hpp"

#include <syncguard/syncguard.hpp>

#include <atomic>
#include <functional>
#include <vector>

namespace syncguard::testing {
namespace {

struct Warnings {
  std::atomic<int> about_threads{0};

  ClientOptions options() {
    ClientOptions options;
    options.log = Log([this](LogLevel, std::string_view message) {
      if (message.find("cannot start another thread") != std::string_view::npos) ++about_threads;
    });
    return options;
  }
};

// Holds a lock until it is told that it has lost it. Then its callback blocks.
class BlockingHolder {
 public:
  BlockingHolder(const Locks& locks, const Key& key)
      : lease_(locks.acquire(key, {.ttl = 1h})), callback_(lease_.lost(), [this] {
          blocked_.set();
          unblock_.wait_for(100s);
        }) {}
  ~BlockingHolder() { unblock_.set(); }
  BlockingHolder(const BlockingHolder&) = delete;
  BlockingHolder& operator=(const BlockingHolder&) = delete;

  [[nodiscard]] bool blocks_after_loss(const Locks& locks) {
    (void)locks.release(lease_.id());
    return !lease_.extend(1h) && blocked_.wait_for(60s);
  }

 private:
  Signal blocked_;
  Signal unblock_;
  Lease lease_;
  std::stop_callback<std::function<void()>> callback_;
};

TEST(NoThread, BlockedCallbackDoesNotDelayTheLossOfAnotherLease) {
  Warnings warnings;
  const Locks locks(make_memory_backend(), warnings.options());
  BlockingHolder first(locks, "a");
  BlockingHolder second(locks, "b");
  ASSERT_EQ(threads_named("syncguard-lost"), 2U) << "there must be two from the beginning";
  const NoThreads no_threads;
  EXPECT_TRUE(first.blocks_after_loss(locks));
  EXPECT_TRUE(second.blocks_after_loss(locks)) << "the loss waited for a callback of the first";
  EXPECT_TRUE(eventually([&] { return warnings.about_threads > 0; }));
}

TEST(NoThread, ClosingTellsEveryLoss) {
  Warnings warnings;
  const Locks locks(make_memory_backend(), warnings.options());
  // As many as there are threads for callbacks.
  BlockingHolder first(locks, "a");
  BlockingHolder second(locks, "b");
  std::vector<Lease> leases;
  for (const char* key : {"c", "d", "e"}) leases.push_back(locks.acquire(key, {.ttl = 1h}));
  const NoThreads no_threads;
  ASSERT_TRUE(first.blocks_after_loss(locks));
  ASSERT_TRUE(second.blocks_after_loss(locks));
  locks.close();
  for (const auto& lease : leases) EXPECT_TRUE(lease.lost().stop_requested()) << lease.key().str();
}

TEST(NoThread, OpeningFailsWithAnErrorOfTheLibrary) {
  const NoThreads no_threads;
  expect_error(ErrorCode::internal, [] { (void)open("memory:"); });
}

}  // namespace
}  // namespace syncguard::testing
