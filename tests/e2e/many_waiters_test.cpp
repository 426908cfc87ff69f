// Ten thousand callers that wait for one key.

#include "e2e/faulty_client.hpp"
#include "support/thread_count.hpp"

namespace syncguard::testing {
namespace {

TEST(ManyWaiters, NeedNoThreadEachAndReleaseWakesOne) {
  constexpr int waiters = 10'000;
  FaultyClient client;
  auto holder = client.locks.acquire("key", {.ttl = 10min});
  const auto threads_before = thread_count();

  std::mutex mutex;
  std::vector<Lease> acquired;
  std::atomic<int> aborted{0};
  const AcquireOptions patient{
      .ttl = 10min,
      .wait = {
          .timeout = 10min, .max_retries = WaitOptions::unlimited_retries, .retry_delay = 10min, .max_delay = 10min}};
  for (int i = 0; i < waiters; ++i) {
    client.locks.async_acquire("key", patient, [&](const std::exception_ptr& error, Lease lease) {
      const std::lock_guard lock(mutex);
      if (error) {
        ++aborted;
      } else {
        acquired.push_back(std::move(lease));
      }
    });
  }
  ASSERT_TRUE(eventually([&] { return client.faults.calls(Operation::join) == 1; }));
  EXPECT_EQ(client.faults.calls(Operation::acquire), 2U) << "of the holder, and of the first waiter";
  EXPECT_EQ(thread_count(), threads_before);

  EXPECT_TRUE(holder.release());
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return acquired.size();
  };
  ASSERT_TRUE(eventually([&] { return count() == 1; }));
  // One attempt of the woken waiter; then the next waiter joins the queue, and finds the key held.
  ASSERT_TRUE(eventually([&] { return client.faults.calls(Operation::join) == 2; }));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(count(), 1U);
  EXPECT_EQ(client.faults.calls(Operation::acquire), 3U);
  EXPECT_EQ(client.faults.calls(Operation::join), 2U);

  client.locks.close();
  EXPECT_TRUE(eventually([&] { return aborted == waiters - 1; }));
}

TEST(ManyWaiters, AreAllServed) {
  constexpr int waiters = 2'000;
  FaultyClient client;
  std::atomic<int> served{0};
  std::atomic<int> inside{0};
  std::atomic<int> overlaps{0};
  const AcquireOptions patient{.wait = {.timeout = 10min, .max_retries = WaitOptions::unlimited_retries}};
  for (int i = 0; i < waiters; ++i) {
    client.locks.async_acquire("key", patient, [&](const std::exception_ptr& error, const Lease&) {
      EXPECT_FALSE(error);
      if (inside.fetch_add(1) != 0) ++overlaps;
      inside.fetch_sub(1);
      ++served;
    });
  }
  EXPECT_TRUE(eventually([&] { return served == waiters; }));
  EXPECT_EQ(overlaps, 0);
}

}  // namespace
}  // namespace syncguard::testing
