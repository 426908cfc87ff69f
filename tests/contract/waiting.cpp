// Waiting for a lock: time-outs, wake-ups, order.

#include "contract/contract.hpp"
#include "contract/parts.hpp"

#include <atomic>
#include <barrier>

namespace syncguard::testing {

const bool parts::waiting = true;

namespace {

using std::chrono::steady_clock;

// For stores that tell nobody.
constexpr AcquireOptions polling{
    .wait = {.timeout = 60s, .max_retries = WaitOptions::unlimited_retries, .retry_delay = 20ms, .max_delay = 50ms}};

TEST_P(Contract, WaitingEndsWithAcquisitionTimeoutInTime) {
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

TEST_P(Contract, WithoutTimeItMakesOneAttempt) {
  auto locks = open_client(store());
  { EXPECT_TRUE(locks.acquire("key", {.wait = {.timeout = 0ms}})); }
  const auto lease = locks.try_acquire("key");
  expect_error(ErrorCode::acquisition_timeout, [&] { (void)locks.acquire("key", {.wait = {.timeout = 0ms}}); });
}

TEST_P(Contract, AReleaseWakesAWaiterOfAnotherClient) {
  const AcquireOptions& options = store().tells_waiters() ? patient : polling;
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

TEST_P(Contract, AReleaseByIdWakesAWaiterToo) {
  const AcquireOptions& options = store().tells_waiters() ? patient : polling;
  auto holder = open_client(store());
  auto waiter = open_client(store());
  auto lease = holder.acquire("key");
  const LockId id = lease.detach();
  auto waiting = std::async(std::launch::async, [&] { return waiter.acquire("key", options).fence(); });
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(holder.release(id));
  ASSERT_EQ(waiting.wait_for(soon), std::future_status::ready);
  EXPECT_EQ(waiting.get(), Fence(2));
}

TEST_P(Contract, AWaiterTakesTheLockWhenItsHolderIsGone) {
  auto locks = open_client(store());
  const auto start = steady_clock::now();
  locks.acquire("key", {.ttl = 1s}).detach();
  EXPECT_EQ(locks.acquire("key", patient).fence(), Fence(2));
  const auto waited = steady_clock::now() - start;
  EXPECT_GE(waited, 1990ms) << "the ttl and the tolerance";
  EXPECT_LT(waited, 2s + soon) << "far below the delay of a minute";
}

TEST_P(Contract, WaitersOfOneClientAreServedInTheOrderTheyCame) {
  const AcquireOptions& options = store().tells_waiters() ? patient : polling;
  auto locks = open_client(store());
  auto lease = locks.acquire("key", options);
  std::mutex mutex;
  std::vector<int> order;
  std::promise<void> all_served;
  // By asynchronous calls, each of which is in line when it returns.
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
  std::stop_source stop;
  const auto token = stop.get_token();
  AcquireOptions options = patient;
  options.wait.stop = &token;
  // In line when it returns.
  auto waiting = locks.async_acquire("key", options, asio::use_future);
  EXPECT_FALSE(locks.try_acquire("key"));
  EXPECT_EQ(waiting.wait_for(0ms), std::future_status::timeout) << "it did not wait for the one in line";
  stop.request_stop();
  expect_error(ErrorCode::aborted, [&] { (void)waiting.get(); });
}

TEST_P(Contract, WaitersOnDifferentKeysDoNotWaitForEachOther) {
  auto locks = open_client(store());
  const auto lease = locks.acquire("held");
  std::stop_source stop;
  const auto token = stop.get_token();
  AcquireOptions options = patient;
  options.wait.stop = &token;
  auto waiting = locks.async_acquire("held", options, asio::use_future);
  EXPECT_TRUE(locks.acquire("free"));
  EXPECT_EQ(waiting.wait_for(0ms), std::future_status::timeout);
  stop.request_stop();
  expect_error(ErrorCode::aborted, [&] { (void)waiting.get(); });
}

// The queue itself, at the backend. Where nobody is told there is none, and join says so.

TEST_P(Contract, ATurnIsReservedForTheOldestWaiter) {
  RawBackend backend(store().make_backend({}));
  const auto limits = RawBackend::limits_for({});
  const auto holder = LockId::generate();
  const auto first = LockId::generate();
  const auto second = LockId::generate();
  granted(backend.acquire("key", holder, 30s));
  Signal first_told;
  Signal second_told;
  const Key key("key");
  const auto first_ticket = backend.run((*backend).join(
      key, first, [&] { first_told.set(); }, limits));
  ASSERT_EQ(first_ticket != nullptr, store().tells_waiters());
  if (!store().keeps_order()) return;
  const auto second_ticket = backend.run((*backend).join(
      key, second, [&] { second_told.set(); }, limits));

  ASSERT_TRUE(released(backend.release(holder)));
  EXPECT_TRUE(first_told.wait_for(soon));
  EXPECT_FALSE(second_told.wait_for(0ms));
  const auto barging = backend.acquire("key", LockId::generate(), 30s);
  const auto in_turn = backend.acquire("key", first, 30s);
  // On a machine so busy that the moment passed in between, the turn is lost, and that is all.
  if (contended(barging)) {
    EXPECT_LE(std::get<Contended>(barging).free_in, 50ms);
    ASSERT_FALSE(contended(in_turn));
    ASSERT_TRUE(released(backend.release(first)));
    EXPECT_TRUE(second_told.wait_for(soon)) << "the next release tells the next";
  }
}

TEST_P(Contract, AReservationEndsAfterAMoment) {
  if (!store().tells_waiters()) return;
  RawBackend backend(store().make_backend({}));
  const auto limits = RawBackend::limits_for({});
  const auto holder = LockId::generate();
  const Key key("key");
  granted(backend.acquire(key, holder, 30s));
  const auto ticket = backend.run((*backend).join(
      key, LockId::generate(), [] {}, limits));
  ASSERT_TRUE(released(backend.release(holder)));
  store().let_pass(60ms);
  granted(backend.acquire(key, LockId::generate(), 30s));
}

TEST_P(Contract, AWaiterThatLeavesPassesItsTurnOn) {
  if (!store().keeps_order()) return;
  RawBackend backend(store().make_backend({}));
  int round = 0;
  const auto passed_on = [&] {
    const auto limits = RawBackend::limits_for({});
    const auto holder = LockId::generate();
    Signal second_told;
    const Key key("key " + std::to_string(++round));
    granted(backend.acquire(key, holder, 30s));
    const auto first = backend.run((*backend).join(
        key, LockId::generate(), [] {}, limits));
    const auto second = backend.run((*backend).join(
        key, LockId::generate(), [&] { second_told.set(); }, limits));
    const auto third = backend.run((*backend).join(
        key, LockId::generate(), [] {}, limits));
    backend.run(second->rejoin(limits));  // which keeps its place
    EXPECT_TRUE(released(backend.release(holder)));
    // Before the turn is over, which takes 50 ms, unless the machine is busy elsewhere.
    backend.run(first->leave(limits));
    const bool told = second_told.wait_for(2s);
    backend.run(second->leave(limits));
    backend.run(third->leave(limits));
    return told;
  };
  EXPECT_TRUE(succeeds_once(passed_on));
}

// What workers that fight over one key see. In the critical section a worker is alone, holds the newest fence, and
// stays for a millisecond.
class Contest {
 public:
  static constexpr int workers = 8;
  static constexpr int most_turns = workers * 50;

  // Begins when all are there, and ends when so many turns were taken, however long that takes.
  void run(int worker, Locks locks, const AcquireOptions& options) {
    start_.arrive_and_wait();
    while (all_turns_ < most_turns) {
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
  for (const int turns : contest.turns()) EXPECT_GT(turns, 0) << "somebody starved";
  if (order == Order::kept) {
    EXPECT_GE(jain(contest.turns()), 0.95) << ::testing::PrintToString(contest.turns());
  }
}

TEST_P(Contract, ThreadsOfOneClientShareAKeyFairly) {
  const AcquireOptions& options = store().tells_waiters() ? patient : polling;
  Contest contest;
  auto locks = open_client(store());
  std::vector<std::thread> threads;
  for (int w = 0; w < Contest::workers; ++w) threads.emplace_back([&, w] { contest.run(w, locks, options); });
  for (auto& thread : threads) thread.join();
  expect_fair(contest, Order::kept);  // the line inside a client needs no help from the store
}

TEST_P(Contract, ClientsShareAKeyFairly) {
  const AcquireOptions& options = store().tells_waiters() ? patient : polling;
  Contest contest;
  std::vector<std::thread> threads;
  for (int w = 0; w < Contest::workers; ++w) {
    threads.emplace_back([&, w] {
      auto locks = open_client(store());
      (void)locks.is_locked("contested");  // connects
      contest.run(w, std::move(locks), options);
    });
  }
  const auto start = steady_clock::now();
  for (auto& thread : threads) thread.join();
  // A turn is reserved for 50 ms. On a machine so busy that it takes nearly that long to take one, many come too late.
  const bool turns_are_taken_in_time = steady_clock::now() - start < Contest::most_turns * 15ms;
  expect_fair(contest, store().keeps_order() && turns_are_taken_in_time ? Order::kept : Order::not_kept);
}

}  // namespace
}  // namespace syncguard::testing
