// Waiting for a lock: timeouts, wake-ups, order.

#include "contract/contract.hpp"
#include "contract/parts.hpp"
#include "support/is_granted.hpp"

#include <atomic>
#include <barrier>

namespace syncguard::testing {

const bool parts::waiting = true;

namespace {

using std::chrono::steady_clock;

// For stores that do not notify waiters.
constexpr AcquireOptions polling{
    .wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries, .retry_delay = 20ms, .max_delay = 50ms}};

TEST_P(Contract, WaitTimesOutOnTime) {
  auto locks = open_client(store());
  const auto lease = locks.try_acquire("key");
  const auto start = steady_clock::now();
  AcquireOptions options = patient;
  options.wait.timeout = 300ms;
  expect_error(ErrorCode::acquisition_timeout, [&] { (void)locks.acquire("key", options); });
  const auto waited = steady_clock::now() - start;
  EXPECT_GE(waited, 300ms);
  EXPECT_LT(waited, soon);
}

TEST_P(Contract, ZeroTimeoutMakesOneAttempt) {
  auto locks = open_client(store());
  { EXPECT_TRUE(locks.acquire("key", {.wait = {.timeout = 0ms}})); }
  const auto lease = locks.try_acquire("key");
  expect_error(ErrorCode::acquisition_timeout, [&] { (void)locks.acquire("key", {.wait = {.timeout = 0ms}}); });
}

TEST_P(Contract, ReleaseWakesWaiterOfAnotherClient) {
  const AcquireOptions& options = store().wakes_waiters() ? patient : polling;
  auto holder = open_client(store());
  auto waiter = open_client(store());
  for (int round = 0; round < 5; ++round) {
    auto lease = holder.acquire("key", options);
    std::atomic<bool> acquired{false};
    auto waiting = std::async(std::launch::async, [&] {
      const auto taken = waiter.acquire("key", options);
      acquired = true;
      return steady_clock::now();
    });
    std::this_thread::sleep_for(100ms);
    EXPECT_FALSE(acquired);
    const auto released_at = steady_clock::now();
    EXPECT_TRUE(lease.release());
    EXPECT_LT(waiting.get() - released_at, soon);
  }
}

TEST_P(Contract, ReleaseByIdWakesWaiter) {
  const AcquireOptions& options = store().wakes_waiters() ? patient : polling;
  auto holder = open_client(store());
  auto waiter = open_client(store());
  auto lease = holder.acquire("key");
  const LockId id = lease.detach();
  auto waiting = std::async(std::launch::async, [&] { return waiter.acquire("key", options).fence(); });
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(holder.release(id));
  ASSERT_EQ(waiting.wait_for(soon), std::future_status::ready);
  EXPECT_GT(waiting.get(), lease.fence());
}

TEST_P(Contract, WaiterAcquiresWhenHoldersLockExpires) {
  auto locks = open_client(store());
  const auto start = steady_clock::now();
  auto expiring = locks.acquire("key", {.ttl = 1s});
  expiring.detach();
  EXPECT_GT(locks.acquire("key", patient).fence(), expiring.fence());
  const auto waited = steady_clock::now() - start;
  EXPECT_GE(waited, 1990ms) << "the lock must be held for its ttl and the tolerance";
  EXPECT_LT(waited, 2s + soon) << "the waiter must not sleep for its whole retry delay of a minute";
}

TEST_P(Contract, WaitersOfOneClientAreServedInOrder) {
  const AcquireOptions& options = store().wakes_waiters() ? patient : polling;
  // Declared before the client, because its callbacks use them.
  std::mutex mutex;
  std::vector<int> order;
  std::promise<void> all_served;
  auto locks = open_client(store());
  auto lease = locks.acquire("key", options);
  // An asynchronous call has joined the queue when it returns.
  for (int i = 0; i < 6; ++i) {
    locks.async_acquire("key", options, [&, i](const std::exception_ptr& error, Lease mine) {
      mine = Lease();
      const std::lock_guard lock(mutex);
      order.push_back(error ? -1 : i);
      if (order.size() == 6) all_served.set_value();
    });
  }
  EXPECT_TRUE(lease.release());
  ASSERT_EQ(all_served.get_future().wait_for(60s), std::future_status::ready);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST_P(Contract, TryAcquireDoesNotQueue) {
  auto locks = open_client(store());
  const auto lease = locks.acquire("key");
  // In the queue when it returns.
  auto waiting = locks.async_acquire("key", patient, asio::use_future);
  EXPECT_FALSE(is_granted(locks.try_acquire("key")));
  EXPECT_EQ(waiting.wait_for(0ms), std::future_status::timeout) << "try_acquire must return before the queued waiter";
  locks.close();
  expect_error(ErrorCode::aborted, [&] { (void)waiting.get(); });
}

TEST_P(Contract, WaitersOnDifferentKeysAreIndependent) {
  auto locks = open_client(store());
  const auto lease = locks.acquire("held");
  auto waiting = locks.async_acquire("held", patient, asio::use_future);
  EXPECT_TRUE(locks.acquire("free"));
  EXPECT_EQ(waiting.wait_for(0ms), std::future_status::timeout);
  locks.close();
  expect_error(ErrorCode::aborted, [&] { (void)waiting.get(); });
}

// The queue of the backend. A backend that does not notify waiters has no queue, and its join returns null.

TEST_P(Contract, ReleaseReservesTurnForOldestWaiter) {
  RawBackend backend(store().make_backend({}));
  const auto holder = LockId::generate();
  const auto first = LockId::generate();
  const auto second = LockId::generate();
  granted(backend.acquire("key", holder, 30s));
  Signal first_woken;
  Signal second_woken;
  const Key key("key");
  const auto first_ticket = backend.join(key, first, [&] { first_woken.set(); });
  ASSERT_EQ(first_ticket != nullptr, store().wakes_waiters());
  if (!store().keeps_order()) return;
  const auto second_ticket = backend.join(key, second, [&] { second_woken.set(); });

  ASSERT_TRUE(released(backend.release(holder)));
  EXPECT_TRUE(first_woken.wait_for(soon));
  EXPECT_FALSE(second_woken.wait_for(0ms));
  const auto barging = backend.acquire("key", LockId::generate(), 30s);
  const auto in_turn = backend.acquire("key", first, 30s);
  // If the machine was so busy that the reservation lapsed before this acquire, there is nothing to check.
  if (contended(barging)) {
    EXPECT_LE(std::get<Contended>(barging).free_in, 300ms) << "the contract's maximum reservation";
    ASSERT_FALSE(contended(in_turn));
    ASSERT_TRUE(released(backend.release(first)));
    EXPECT_TRUE(second_woken.wait_for(soon)) << "the next release must wake the next waiter";
  }
}

TEST_P(Contract, ReservationLapses) {
  if (!store().wakes_waiters()) return;
  RawBackend backend(store().make_backend({}));
  const auto holder = LockId::generate();
  const Key key("key");
  granted(backend.acquire(key, holder, 30s));
  const auto ticket = backend.join(key, LockId::generate(), [] {});
  ASSERT_TRUE(released(backend.release(holder)));
  store().let_pass(310ms);  // longer than the contract's maximum reservation
  granted(backend.acquire(key, LockId::generate(), 30s));
}

TEST_P(Contract, LeavingWaiterPassesItsTurnOn) {
  if (!store().keeps_order()) return;
  RawBackend backend(store().make_backend({}));
  int round = 0;
  const auto passed_on = [&] {
    const auto limits = RawBackend::limits_for({});
    const auto holder = LockId::generate();
    Signal second_woken;
    const Key key("key " + std::to_string(++round));
    granted(backend.acquire(key, holder, 30s));
    const auto first = backend.join(key, LockId::generate(), [] {});
    const auto second = backend.join(key, LockId::generate(), [&] { second_woken.set(); });
    const auto third = backend.join(key, LockId::generate(), [] {});
    backend.run(second->rejoin(limits));  // keeps its place in front of the third
    EXPECT_TRUE(released(backend.release(holder)));
    // Leaves within the 50 ms of its turn, unless the machine is busy.
    backend.run(first->leave(limits));
    const bool woken = second_woken.wait_for(2s);
    backend.run(second->leave(limits));
    backend.run(third->leave(limits));
    return woken;
  };
  EXPECT_TRUE(succeeds_once(passed_on));
}

// Workers compete for one key. Each critical section takes a millisecond and checks that the worker is alone in it and
// holds the newest fence.
class Contest {
 public:
  static constexpr int workers = 8;
  static constexpr int max_turns = workers * 50;

  // Starts when all workers have arrived, and ends after max_turns turns, however long that takes.
  void run(int worker, Locks locks, const AcquireOptions& options) {
    start_.arrive_and_wait();
    while (all_turns_ < max_turns) {
      const auto lease = locks.acquire("contested", options);
      if (inside_.fetch_add(1) != 0) ++overlaps_;
      if (!gate_.admit("contested", lease.fence())) ++overlaps_;
      std::this_thread::sleep_for(1ms);
      ++turns_[static_cast<std::size_t>(worker)];
      ++all_turns_;
      inside_.fetch_sub(1);
    }
  }

  [[nodiscard]] const std::vector<int>& turns() const { return turns_; }
  [[nodiscard]] int overlaps() const { return overlaps_; }

 private:
  std::barrier<> start_{workers};
  std::vector<int> turns_ = std::vector<int>(workers);
  std::atomic<int> all_turns_{0};
  std::atomic<int> inside_{0};
  std::atomic<int> overlaps_{0};
  FenceGate gate_;
};

enum class Order { kept, not_kept };

void expect_fair(const Contest& contest, Order order) {
  EXPECT_EQ(contest.overlaps(), 0);
  for (const int turns : contest.turns()) EXPECT_GT(turns, 0) << "a worker starved";
  if (order == Order::kept) {
    EXPECT_GE(jain(contest.turns()), 0.95) << ::testing::PrintToString(contest.turns());
  }
}

TEST_P(Contract, ThreadsOfOneClientShareKeyFairly) {
  const AcquireOptions& options = store().wakes_waiters() ? patient : polling;
  Contest contest;
  auto locks = open_client(store());
  std::vector<std::thread> threads;
  for (int w = 0; w < Contest::workers; ++w) threads.emplace_back([&, w] { contest.run(w, locks, options); });
  for (auto& thread : threads) thread.join();
  expect_fair(contest, Order::kept);  // the client itself keeps the order of its waiters
}

TEST_P(Contract, ClientsShareKeyFairly) {
  const AcquireOptions& options = store().wakes_waiters() ? patient : polling;
  Contest contest;
  std::vector<std::thread> threads;
  for (int w = 0; w < Contest::workers; ++w) {
    threads.emplace_back([&, w] {
      auto locks = open_client(store());
      {
        // Opens the connections for operations and for waiting before the contest, so that slow connects do not
        // affect the turns.
        const auto lease = locks.acquire("warm-up", options);
        std::this_thread::sleep_for(20ms);
      }
      contest.run(w, std::move(locks), options);
    });
  }
  const auto start = steady_clock::now();
  for (auto& thread : threads) thread.join();
  // A turn is reserved for 50 ms. On a very busy machine, many waiters need longer than that and lose their turn.
  const bool turns_are_taken_in_time = steady_clock::now() - start < Contest::max_turns * 15ms;
  expect_fair(contest, store().keeps_order() && turns_are_taken_in_time ? Order::kept : Order::not_kept);
}

}  // namespace
}  // namespace syncguard::testing
