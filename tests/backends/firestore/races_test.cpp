// Clients that use the same documents concurrently. Proxies control the order in which their calls reach the emulator.

#include "fixture.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <thread>

namespace syncguard::testing {
namespace {

// ---------------------------------------------------------------------------------------------------------------------
// Every possible order of the calls of several clients

// Forwards the calls of several clients in a given order. Each call ends before the next begins.
class CallSequence {
 public:
  explicit CallSequence(std::vector<int> order) : order_(std::move(order)) {}

  // The script for one client's proxy.
  FirestoreProxy::Script of(int client) {
    return [this, client](const std::string&) {
      wait_for_turn(client);
      return FirestoreProxy::forward();
    };
  }
  // The client makes no more calls; its remaining places in the order are skipped.
  void done(int client) {
    const std::lock_guard lock(mutex_);
    done_.insert(client);
    under_way_.erase(client);
    moved_.notify_all();
  }

 private:
  void wait_for_turn(int client) {
    std::unique_lock lock(mutex_);
    // A client makes its next call only after the previous one was answered.
    under_way_.erase(client);
    moved_.notify_all();
    moved_.wait(lock, [&] {
      while (next_ < order_.size() && done_.contains(order_[next_])) ++next_;
      // After the end of the given order, any client may call.
      return under_way_.empty() && (next_ == order_.size() || order_[next_] == client);
    });
    if (next_ < order_.size()) ++next_;
    under_way_.insert(client);
  }

  const std::vector<int> order_;
  std::mutex mutex_;
  std::condition_variable moved_;
  std::size_t next_ = 0;
  std::set<int> under_way_;
  std::set<int> done_;
};

struct FirestoreRaces : public FirestoreTest {
  std::array<FirestoreProxy, 3> proxies{FirestoreProxy(emulator.address()), FirestoreProxy(emulator.address()),
                                        FirestoreProxy(emulator.address())};
  std::array<Locks, 3> clients{open(proxies[0].url(project, "&operation_timeout=60s")),
                               open(proxies[1].url(project, "&operation_timeout=60s")),
                               open(proxies[2].url(project, "&operation_timeout=60s"))};

  // Runs one action per client concurrently, with the calls in the given order.
  void run(const std::vector<int>& order, const std::array<std::function<void(Locks&)>, 3>& actions) {
    CallSequence sequence(order);
    for (int i = 0; i < 3; ++i) proxies.at(static_cast<std::size_t>(i)).set_script(sequence.of(i));
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        actions.at(static_cast<std::size_t>(i))(clients.at(static_cast<std::size_t>(i)));
        sequence.done(i);
      });
    }
    for (auto& thread : threads) thread.join();
    for (auto& proxy : proxies) proxy.set_script({});
  }

  [[nodiscard]] std::uint64_t counter(const std::string& key) const {
    const auto document = outside.get("fence_counters/fence:" + key);
    return document.is_null() ? 0 : Fence::parse(document["fields"]["fence"]["stringValue"].get<std::string>()).value();
  }
};

// All 90 orders in which three clients can make two calls each.
std::vector<std::vector<int>> all_orders() {
  std::vector<int> order = {0, 0, 1, 1, 2, 2};
  std::vector<std::vector<int>> all;
  do all.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));
  return all;
}

TEST_F(FirestoreRaces, OneOfThreeConcurrentAcquiresSucceeds) {
  int round = 0;
  for (const auto& order : all_orders()) {
    for (const bool expired_before : {false, true}) {
      const std::string key = "key" + std::to_string(++round);
      // Ahead of the clock, so that the next fence shows that the expired lock's counts, although there is no counter.
      const Fence expired_fence(50'000'000'000'000);
      if (expired_before) put_lock(key, LockId::generate(), -5s, expired_fence);
      std::array<std::optional<LockId>, 3> granted;
      const auto acquire_as = [&](std::size_t i) {
        return [&, i](Locks& locks) {
          if (auto lease = locks.try_acquire(key)) granted.at(i) = lease->detach();
        };
      };
      run(order, {acquire_as(0), acquire_as(1), acquire_as(2)});
      ASSERT_EQ(std::ranges::count_if(granted, [](const auto& id) { return id.has_value(); }), 1)
          << ::testing::PrintToString(order);
      const auto holder = std::ranges::find_if(granted, [](const auto& id) { return id.has_value(); });
      const auto stored = outside.get("locks/" + key)["fields"];
      EXPECT_EQ(stored["lockId"], text_value((*holder)->str()));
      EXPECT_EQ(stored["fence"], text_value(Fence(counter(key)).str()));
      if (expired_before) {
        EXPECT_EQ(counter(key), expired_fence.value() + 1);
      }
    }
  }
}

TEST_F(FirestoreRaces, ReleaseDuringConcurrentAcquiresNeverMakesTwoHolders) {
  int round = 0;
  for (const auto& order : all_orders()) {
    const std::string key = "key" + std::to_string(++round);
    auto first = clients[0].acquire(key);
    first.detach();
    std::array<std::optional<Lease>, 3> leases;
    bool released = false;
    const auto acquire_as = [&](std::size_t i) {
      return [&, i](Locks& locks) { leases.at(i) = locks.try_acquire(key); };
    };
    run(order, {[&](Locks& locks) { released = locks.release(first.id()); }, acquire_as(1), acquire_as(2)});
    EXPECT_TRUE(released) << "no other client may remove the lock";
    ASSERT_FALSE(leases[1] && leases[2]) << ::testing::PrintToString(order);
    const bool taken = leases[1] || leases[2];
    EXPECT_EQ(counter(key) > first.fence().value(), taken) << "only a grant changes the counter";
    EXPECT_EQ(outside.get("locks/" + key).is_null(), !taken);
    for (auto& lease : leases) {
      if (lease) {
        EXPECT_EQ(lease->fence(), Fence(counter(key)));
        EXPECT_TRUE(lease->release()) << "a release of an older lock must not remove it";
      }
    }
  }
}

// The clock of the extending client is behind, so the lock is live for it. The clocks of the other two are ahead, so
// the lock is expired for them.
TEST_F(FirestoreRaces, ExtendDuringTakeoverNeverMakesTwoHolders) {
  const auto skewed = [&](std::size_t i, std::chrono::milliseconds skew) {
    FirestoreOptions options;
    options.project = project;
    options.emulator = proxies.at(i).address();
    options.operation_timeout = 60s;
    options.clock = [skew] { return system_now() + skew; };
    return Locks(make_firestore_backend(options, Log([](LogLevel, std::string_view) {})));
  };
  clients = {skewed(0, -300ms), skewed(1, 300ms), skewed(2, 300ms)};
  // The replies below arrive too late to tell how far the clocks are off.
  for (const auto& client : clients) {
    for (int i = 0; i < 5; ++i) (void)client.is_locked("key");
  }
  int round = 0;
  int extends = 0;
  int take_overs = 0;
  const auto race = [&](const std::vector<int>& order) {
    const std::string key = "key" + std::to_string(++round);
    const auto id = LockId::generate();
    put_lock(key, id, -750ms);
    bool extended = false;
    std::array<std::optional<Lease>, 3> leases;
    const auto acquire_as = [&](std::size_t i) {
      return [&, i](Locks& locks) { leases.at(i) = locks.try_acquire(key, {.ttl = 20s}); };
    };
    run(order, {[&](Locks& locks) { extended = locks.extend(id, 20s).has_value(); }, acquire_as(1), acquire_as(2)});
    const int taken_over = (leases[1] ? 1 : 0) + (leases[2] ? 1 : 0);
    EXPECT_LE(taken_over + (extended ? 1 : 0), 1) << ::testing::PrintToString(order);
    extends += extended ? 1 : 0;
    take_overs += taken_over;
    for (auto& lease : leases) {
      if (lease) {
        EXPECT_GT(lease->fence(), Fence(1));
        EXPECT_TRUE(lease->release());
      }
    }
  };
  for (const auto& order : all_orders()) race(order);
  EXPECT_GT(take_overs, 0);
  // On a busy machine, the lock may have expired for all clients before the first call.
  EXPECT_TRUE(succeeds_once([&] {
    if (extends == 0) race({0, 0, 1, 1, 2, 2});
    return extends > 0;
  }));
}

// ---------------------------------------------------------------------------------------------------------------------
// Other clients that use transactions, as Google's libraries do

// Acquires in a read-write transaction, as the TypeScript library does.
class Transaction {
 public:
  Transaction(const FirestoreRestClient& outside, std::string key)
      : outside_(outside), key_(std::move(key)), transaction_(outside.begin()) {}

  void read() {
    for (const auto& answer : outside_.get_in(transaction_, {"locks/" + key_, "fence_counters/fence:" + key_})) {
      if (!answer.contains("found")) continue;
      const bool is_lock = answer["found"]["name"] == outside_.name_of("locks/" + key_);
      (is_lock ? lock_ : counter_) = answer["found"]["fields"];
    }
  }
  // Returns the fence, or nothing if the lock is held or Firestore aborted the transaction.
  [[nodiscard]] std::optional<Fence> commit() const {
    json writes = json::array();
    const auto counted =
        counter_.is_null() ? 0 : Fence::parse(counter_["fence"]["stringValue"].get<std::string>()).value();
    const Fence fence(counted + 1);
    if (lock_.is_null()) {
      const auto now = system_now();
      writes.push_back(
          outside_.write_of("locks/" + key_, fields_of_lock({key_, LockId::generate(), now + 1min, now, fence})));
      writes.push_back(outside_.write_of("fence_counters/fence:" + key_, {{"fence", text_value(fence.str())}}));
    }
    const bool committed = outside_.commit_in(transaction_, writes);
    return committed && lock_.is_null() ? std::optional(fence) : std::nullopt;
  }

 private:
  const FirestoreRestClient& outside_;
  const std::string key_;
  const std::string transaction_;
  json lock_;
  json counter_;
};

// An acquire of this library and one in a transaction, in every order that makes a difference.
TEST_F(FirestoreRaces, TransactionClientsAndOursExcludeEachOther) {
  enum class Order { ours_before_peer_reads, both_at_once, peer_reads_before_ours, peer_reads_and_waits };
  auto locks = client("&operation_timeout=60s");
  std::set<std::uint64_t> fences;
  int theirs = 0;
  for (int round = 0; round < 60; ++round) {
    const auto order = Order(round % 4);
    Transaction transaction(outside, "key");
    const bool peer_reads_first = order == Order::peer_reads_before_ours || order == Order::peer_reads_and_waits;
    if (peer_reads_first) transaction.read();
    auto our_attempt = std::async(std::launch::async, [&] {
      try {
        return locks.try_acquire("key");
      } catch (const LockError& error) {
        // A pending transaction may last longer than all retries.
        EXPECT_EQ(error.code(), ErrorCode::service_unavailable) << error.what();
        return TryResult();
      }
    });
    if (order == Order::ours_before_peer_reads) our_attempt.wait();
    if (order == Order::peer_reads_and_waits) our_attempt.wait_for(200ms);
    if (!peer_reads_first) transaction.read();
    const auto their_fence = transaction.commit();
    const auto lease = our_attempt.get();
    ASSERT_FALSE(lease && their_fence) << "two holders";
    EXPECT_TRUE(lease || order != Order::ours_before_peer_reads) << "no transaction was open during the acquire";
    const auto fence = lease ? std::optional(lease->fence()) : their_fence;
    EXPECT_TRUE(!fence || fences.insert(fence->value()).second) << "a fence was granted twice";
    theirs += their_fence ? 1 : 0;
    if (their_fence) outside.remove("locks/key");
  }
  EXPECT_GT(theirs, 0);
}

}  // namespace
}  // namespace syncguard::testing
