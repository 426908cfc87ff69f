// Clients that meet in the same documents, replies that are lost, and servers that go away. A proxy decides which call
// reaches the emulator when.

#include "firestore_fixture.hpp"

#include <syncguard/async.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/use_future.hpp>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <thread>

namespace syncguard::testing {
namespace {

using std::chrono::steady_clock;
using ::testing::IsEmpty;

// ---------------------------------------------------------------------------------------------------------------------
// Every order of the calls of several clients

// Lets the calls of several clients through in a given order, one at a time, each to its end.
class Turnstile {
 public:
  explicit Turnstile(std::vector<int> order) : order_(std::move(order)) {}

  // A script for one client's proxy.
  FirestoreProxy::Script of(int client) {
    return [this, client](const std::string&) {
      wait_for_turn(client);
      return FirestoreProxy::forward();
    };
  }
  // A client that is done: what was still to come from it is left out.
  void done(int client) {
    const std::lock_guard lock(mutex_);
    done_.insert(client);
    under_way_.erase(client);
    moved_.notify_all();
  }

 private:
  void wait_for_turn(int client) {
    std::unique_lock lock(mutex_);
    // That it makes another call shows that the one before has been answered.
    under_way_.erase(client);
    moved_.notify_all();
    moved_.wait(lock, [&] {
      while (next_ < order_.size() && done_.contains(order_[next_])) ++next_;
      // Once the order is used up, whoever comes.
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

  // Runs what each client does, with their calls in the given order.
  void run(const std::vector<int>& order, const std::array<std::function<void(Locks&)>, 3>& actions) {
    Turnstile turnstile(order);
    for (int i = 0; i < 3; ++i) proxies.at(static_cast<std::size_t>(i)).set_script(turnstile.of(i));
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        actions.at(static_cast<std::size_t>(i))(clients.at(static_cast<std::size_t>(i)));
        turnstile.done(i);
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

// All orders in which three clients can make two calls each: 90.
std::vector<std::vector<int>> all_orders() {
  std::vector<int> order = {0, 0, 1, 1, 2, 2};
  std::vector<std::vector<int>> all;
  do all.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));
  return all;
}

TEST_F(FirestoreRaces, OfThreeThatAcquireAKeyOneGetsIt) {
  int round = 0;
  for (const auto& order : all_orders()) {
    for (const bool expired_before : {false, true}) {
      const std::string key = "key" + std::to_string(++round);
      if (expired_before) put_lock(key, LockId::generate(), -5s);
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
      // The lock that had expired had fence 1, though its counter is gone.
      const Fence fence(expired_before ? 2 : 1);
      EXPECT_EQ(stored["fence"], text_value(fence.str()));
      EXPECT_EQ(counter(key), fence.value());
    }
  }
}

TEST_F(FirestoreRaces, AReleaseAmongThoseWhoAcquireNeverMakesTwoHolders) {
  int round = 0;
  for (const auto& order : all_orders()) {
    const std::string key = "key" + std::to_string(++round);
    const auto first = clients[0].acquire(key).detach();
    std::array<std::optional<Lease>, 3> leases;
    bool released = false;
    const auto acquire_as = [&](std::size_t i) {
      return [&, i](Locks& locks) { leases.at(i) = locks.try_acquire(key); };
    };
    run(order, {[&](Locks& locks) { released = locks.release(first); }, acquire_as(1), acquire_as(2)});
    EXPECT_TRUE(released) << "nobody else may end it";
    ASSERT_FALSE(leases[1] && leases[2]) << ::testing::PrintToString(order);
    const bool taken = leases[1] || leases[2];
    EXPECT_EQ(counter(key), taken ? 2U : 1U);
    EXPECT_EQ(outside.get("locks/" + key).is_null(), !taken);
    for (auto& lease : leases) {
      if (lease) {
        EXPECT_EQ(lease->fence(), Fence(2));
        EXPECT_TRUE(lease->release()) << "a release of an older lock must not remove it";
      }
    }
  }
}

// To one whose clock is a little behind, the lock is alive; to the others, whose clocks are a little ahead, it is dead.
TEST_F(FirestoreRaces, AnExtendThatMeetsATakeOverNeverMakesTwoHolders) {
  const auto skewed = [&](std::size_t i, std::chrono::milliseconds skew) {
    FirestoreOptions options;
    options.project = project;
    options.emulator = proxies.at(i).address();
    options.operation_timeout = 60s;
    options.clock = [skew] { return system_now() + skew; };
    return Locks(make_firestore_backend(options, Log([](LogLevel, std::string_view) {})));
  };
  clients = {skewed(0, -400ms), skewed(1, 400ms), skewed(2, 400ms)};
  int round = 0;
  int extends = 0;
  int take_overs = 0;
  for (const auto& order : all_orders()) {
    const std::string key = "key" + std::to_string(++round);
    const auto id = LockId::generate();
    put_lock(key, id, -1000ms);
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
        EXPECT_EQ(lease->fence(), Fence(2));
        EXPECT_TRUE(lease->release());
      }
    }
  }
  EXPECT_GT(extends, 0);
  EXPECT_GT(take_overs, 0);
}

// ---------------------------------------------------------------------------------------------------------------------
// One client alone with a bad network

struct FirestoreFailures : public FirestoreTest {
  FirestoreProxy proxy{emulator.address()};

  [[nodiscard]] Locks through_proxy(const std::string& more_options = "") const {
    return open(proxy.url(project, more_options));
  }
  // Does something to calls of one method, and forwards all others.
  void script(const std::string& method, std::function<FirestoreProxy::Fate()> fate) {
    proxy.set_script([method, fate = std::move(fate)](const std::string& called) {
      return called == method ? fate() : FirestoreProxy::forward();
    });
  }
};

TEST_F(FirestoreFailures, EveryOperationCostsWhatTheDocumentsSay) {
  auto locks = through_proxy();
  auto others = through_proxy();
  const auto cost = [&](const std::function<void()>& operation) {
    const int before = proxy.calls();
    operation();
    return proxy.calls() - before;
  };
  std::optional<Lease> lease;
  EXPECT_EQ(cost([&] { lease = locks.try_acquire("key"); }), 2);
  EXPECT_EQ(cost([&] { EXPECT_FALSE(others.try_acquire("key")); }), 1) << "contended";
  EXPECT_EQ(cost([&] { EXPECT_TRUE(lease->extend(30s)); }), 2);
  EXPECT_EQ(cost([&] { EXPECT_TRUE(locks.is_locked("key")); }), 1);
  EXPECT_EQ(cost([&] { EXPECT_TRUE(locks.get_by_key("key")); }), 1);
  EXPECT_EQ(cost([&] { EXPECT_TRUE(locks.owns(lease->id())); }), 1);
  EXPECT_EQ(cost([&] { EXPECT_TRUE(lease->release()); }), 2);
  EXPECT_EQ(cost([&] { EXPECT_FALSE(locks.release(LockId::generate())); }), 1);
}

TEST_F(FirestoreFailures, AClientThatDiesBetweenReadAndCommitDelaysNobody) {
  auto dying = through_proxy("&operation_timeout=60s");
  auto others = client();
  std::promise<void> read_and_about_to_commit;
  std::promise<void> goes_on;
  script("Commit", [&] {
    read_and_about_to_commit.set_value();
    goes_on.get_future().wait();
    return FirestoreProxy::forward();
  });
  auto late = std::async(std::launch::async, [&] { return dying.try_acquire("key").has_value(); });
  read_and_about_to_commit.get_future().wait();

  const auto start = steady_clock::now();
  auto lease = others.try_acquire("key");
  ASSERT_TRUE(lease);
  EXPECT_TRUE(lease->extend(30s));
  EXPECT_LT(steady_clock::now() - start, 2s);

  goes_on.set_value();
  proxy.set_script({});
  EXPECT_FALSE(late.get()) << "and what it commits at last is refused";
  EXPECT_TRUE(lease->release());
}

TEST_F(FirestoreFailures, ACommitWhoseReplyIsLostNeverMakesAClientLoseToItself) {
  auto locks = through_proxy();
  std::atomic<int> lost{0};
  script("Commit", [&] { return lost++ == 0 ? FirestoreProxy::lose_reply() : FirestoreProxy::forward(); });
  auto lease = locks.acquire("key", {.wait = {.timeout = 20s, .retry_delay = 1ms}});
  EXPECT_EQ(lost, 1) << "the second attempt found its own lock";
  EXPECT_EQ(lease.fence(), Fence(1));
  EXPECT_EQ(outside.get("locks/key")["fields"]["lockId"], text_value(lease.id().str()));
  EXPECT_TRUE(lease.release());
}

TEST_F(FirestoreFailures, ALockThatNobodyKnowsOfIsTakenBack) {
  auto locks = through_proxy();
  std::atomic<int> lost{0};
  script("Commit", [&] { return lost++ == 0 ? FirestoreProxy::lose_reply() : FirestoreProxy::forward(); });
  const auto error = error_of([&] { (void)locks.try_acquire("key", {.ttl = 1h}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_TRUE(eventually([&] { return outside.get("locks/key").is_null(); }));
  EXPECT_EQ(client().acquire("key").fence(), Fence(2));
}

// The Commit of an acquire that its caller has given up reaches Firestore after everything else.
TEST_F(FirestoreFailures, ALateCommitFails) {
  auto locks = through_proxy("&operation_timeout=1s");
  ASSERT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("connected"); }); }));
  for (const bool counter_exists : {false, true}) {
    const std::string key = counter_exists ? "used before" : "new";
    if (counter_exists) {
      EXPECT_TRUE(client().acquire(key).release());
    }
    std::promise<void> goes_on;
    auto may_go_on = goes_on.get_future().share();
    std::atomic<int> commits{0};
    script("Commit", [&commits, may_go_on] {
      if (commits++ == 0) may_go_on.wait();
      return FirestoreProxy::forward();
    });
    const auto error = error_of([&] { (void)locks.try_acquire(key, {.ttl = 1h}); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::network_timeout);
    EXPECT_TRUE(error->in_doubt());
    // The background has moved the counter.
    ASSERT_TRUE(eventually([&] {
      const auto counter = outside.get("fence_counters/fence:" + key);
      return !counter.is_null() && counter["fields"]["fence"] == text_value(Fence(counter_exists ? 2 : 0).str());
    }));
    const auto answered = proxy.statuses("Commit").size();
    goes_on.set_value();
    ASSERT_TRUE(eventually([&] { return proxy.statuses("Commit").size() > answered; }));
    EXPECT_THAT(proxy.statuses("Commit").back(),
                ::testing::AnyOf(grpc::StatusCode::FAILED_PRECONDITION, grpc::StatusCode::ALREADY_EXISTS));
    EXPECT_THAT(outside.list("locks"), IsEmpty()) << "the late one left nothing";
    proxy.set_script({});
  }
}

TEST_F(FirestoreFailures, RacesThatAreLostAgainAndAgainEnd) {
  auto locks = through_proxy();
  for (const auto code : {grpc::StatusCode::FAILED_PRECONDITION, grpc::StatusCode::ALREADY_EXISTS,
                          grpc::StatusCode::NOT_FOUND, grpc::StatusCode::ABORTED}) {
    script("Commit", [code] { return FirestoreProxy::refuse(code); });
    const int before = proxy.calls("Commit");
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
    EXPECT_FALSE(error->in_doubt());
    EXPECT_EQ(proxy.calls("Commit") - before, 6);
  }
  // One that is lost only sometimes costs nothing but time.
  std::atomic<int> tries{0};
  script("Commit", [&tries] {
    return tries++ < 3 ? FirestoreProxy::refuse(grpc::StatusCode::ABORTED) : FirestoreProxy::forward();
  });
  EXPECT_TRUE(locks.try_acquire("key"));
}

struct Refusal {
  grpc::StatusCode status;
  ErrorCode of_read;
  ErrorCode of_commit;
  bool commit_in_doubt;
};

TEST_F(FirestoreFailures, EveryStatusHasItsMeaning) {
  using grpc::StatusCode;
  const std::vector<Refusal> refusals = {
      {StatusCode::PERMISSION_DENIED, ErrorCode::auth_failed, ErrorCode::auth_failed, false},
      {StatusCode::UNAUTHENTICATED, ErrorCode::auth_failed, ErrorCode::auth_failed, false},
      {StatusCode::RESOURCE_EXHAUSTED, ErrorCode::rate_limited, ErrorCode::rate_limited, false},
      {StatusCode::INVALID_ARGUMENT, ErrorCode::invalid_argument, ErrorCode::invalid_argument, false},
      {StatusCode::UNAVAILABLE, ErrorCode::service_unavailable, ErrorCode::service_unavailable, true},
      {StatusCode::INTERNAL, ErrorCode::service_unavailable, ErrorCode::service_unavailable, true},
      {StatusCode::DEADLINE_EXCEEDED, ErrorCode::network_timeout, ErrorCode::network_timeout, true},
      {StatusCode::UNKNOWN, ErrorCode::internal, ErrorCode::internal, true},
      {StatusCode::DATA_LOSS, ErrorCode::internal, ErrorCode::internal, true},
      {StatusCode::UNIMPLEMENTED, ErrorCode::internal, ErrorCode::internal, true},
      // Outside a Commit, where they would be lost races.
      {StatusCode::NOT_FOUND, ErrorCode::invalid_argument, ErrorCode::service_unavailable, false},
      {StatusCode::FAILED_PRECONDITION, ErrorCode::invalid_argument, ErrorCode::service_unavailable, false},
      {StatusCode::ABORTED, ErrorCode::service_unavailable, ErrorCode::service_unavailable, false}};
  auto locks = through_proxy();
  const auto id = LockId::generate();
  put_lock("held", id, 1h);
  for (const auto& [status, of_read, of_commit, in_doubt] : refusals) {
    const auto refuse = [code = status] { return FirestoreProxy::refuse(code); };
    script("BatchGetDocuments", refuse);
    auto error = error_of([&] { (void)locks.try_acquire("key"); });
    ASSERT_TRUE(error) << status;
    EXPECT_EQ(error->code(), of_read) << status;
    EXPECT_FALSE(error->in_doubt()) << status;
    EXPECT_THAT(error->what(), ::testing::Not(::testing::HasSubstr("scripted"))) << "the server's words are the cause";
    EXPECT_TRUE(error->context().cause);
    expect_error(of_read, [&] { (void)locks.is_locked("key"); });
    expect_error(of_read, [&] { (void)locks.get_by_key("key"); });
    script("RunQuery", refuse);
    expect_error(of_read, [&] { (void)locks.release(id); });
    expect_error(of_read, [&] { (void)locks.extend(id, 1h); });
    expect_error(of_read, [&] { (void)locks.owns(id); });
    script("Commit", refuse);
    error = error_of([&] { (void)locks.try_acquire("key"); });
    ASSERT_TRUE(error) << status;
    EXPECT_EQ(error->code(), of_commit) << status;
    EXPECT_EQ(error->in_doubt(), in_doubt) << status;
    expect_error(of_commit, [&] { (void)locks.release(id); });
    expect_error(of_commit, [&] { (void)locks.extend(id, 1h); });
  }
}

// A call is made by the caller's own thread if that is about to block, and otherwise by gRPC's.
struct Way {
  const char* name;
  std::optional<LockError> (*try_acquire)(Locks& locks, const std::stop_token& stop);
};

std::optional<LockError> try_acquire_blocking(Locks& locks, const std::stop_token& stop) {
  return error_of([&] { (void)locks.try_acquire("key", {}, stop); });
}

std::optional<LockError> try_acquire_asynchronously(Locks& locks, const std::stop_token& stop) {
  asio::io_context context;
  asio::cancellation_signal signal;
  std::exception_ptr outcome;
  const auto take = [&](std::exception_ptr error, const std::optional<Lease>&) { outcome = std::move(error); };
  locks.async_try_acquire("key", {}, asio::bind_cancellation_slot(signal.slot(), asio::bind_executor(context, take)));
  const std::stop_callback cancel(
      stop, [&] { asio::post(context, [&] { signal.emit(asio::cancellation_type::terminal); }); });
  context.run();
  return error_of([&] {
    if (outcome) std::rethrow_exception(outcome);
  });
}

constexpr std::array both_ways{Way{"blocking", try_acquire_blocking}, Way{"asynchronous", try_acquire_asynchronously}};

TEST_F(FirestoreFailures, AStopEndsTheCallThatIsInFlight) {
  auto locks = through_proxy("&operation_timeout=60s");
  // Not the first call, which finds credentials before.
  EXPECT_FALSE(locks.is_locked("key"));
  for (const std::string method : {"BatchGetDocuments", "Commit"}) {
    for (const Way& way : both_ways) {
      SCOPED_TRACE(method + ", " + way.name);
      script(method, [] { return FirestoreProxy::hang(); });
      const int before = proxy.calls(method);
      const int given_up_before = proxy.given_up();
      std::stop_source stop;
      std::optional<LockError> error;
      steady_clock::time_point ended;
      std::thread caller([&] {
        error = way.try_acquire(locks, stop.get_token());
        ended = steady_clock::now();
      });
      EXPECT_TRUE(eventually([&] { return proxy.calls(method) > before; }));
      const auto stopped_at = steady_clock::now();
      stop.request_stop();
      caller.join();
      EXPECT_LT(ended - stopped_at, 1s) << "50 ms on a machine that has nothing else to do";
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::aborted);
      EXPECT_EQ(error->in_doubt(), method == "Commit");
      EXPECT_TRUE(eventually([&] { return proxy.given_up() > given_up_before; })) << "the server hears of it";
    }
  }
  proxy.set_script({});
}

TEST_F(FirestoreFailures, ASilentServerCostsTheOperationTimeout) {
  auto locks = through_proxy("&operation_timeout=1s");
  ASSERT_TRUE(eventually([&] { return !error_of([&] { (void)locks.is_locked("connected"); }); }));
  for (const std::string method : {"BatchGetDocuments", "Commit"}) {
    for (const Way& way : both_ways) {
      SCOPED_TRACE(method + ", " + way.name);
      script(method, [] { return FirestoreProxy::hang(); });
      const auto start = steady_clock::now();
      const auto error = way.try_acquire(locks, {});
      EXPECT_LT(steady_clock::now() - start, 3s);
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::network_timeout);
      EXPECT_EQ(error->in_doubt(), method == "Commit");
    }
  }
  proxy.set_script({});
}

// ---------------------------------------------------------------------------------------------------------------------
// Beside clients that use transactions, as Google's own libraries do

// Acquires as the TypeScript library does: in a read-write transaction.
class Transaction {
 public:
  Transaction(const FirestoreOutsider& outside, std::string key)
      : outside_(outside), key_(std::move(key)), transaction_(outside.begin()) {}

  void read() {
    for (const auto& answer : outside_.get_in(transaction_, {"locks/" + key_, "fence_counters/fence:" + key_})) {
      if (!answer.contains("found")) continue;
      const bool is_lock = answer["found"]["name"] == outside_.name_of("locks/" + key_);
      (is_lock ? lock_ : counter_) = answer["found"]["fields"];
    }
  }
  // The fence, or nothing if the lock is held or Firestore gave the transaction up.
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
  const FirestoreOutsider& outside_;
  const std::string key_;
  const std::string transaction_;
  json lock_;
  json counter_;
};

// Ours against theirs: they have read already, or begin at the same time.
TEST_F(FirestoreFailures, ClientsWithTransactionsAndOursExcludeEachOther) {
  auto locks = client("&operation_timeout=60s");
  std::set<std::uint64_t> fences;
  int ours = 0;
  int theirs = 0;
  for (int round = 0; round < 60; ++round) {
    Transaction transaction(outside, "key");
    const bool has_read = round % 3 != 0;
    if (has_read) transaction.read();
    auto our_attempt = std::async(std::launch::async, [&] {
      try {
        return locks.try_acquire("key");
      } catch (const LockError& error) {
        // A transaction that is under way may outlast all re-runs.
        EXPECT_EQ(error.code(), ErrorCode::service_unavailable) << error.what();
        return std::optional<Lease>();
      }
    });
    // In every third round ours has all the time it wants.
    if (round % 3 == 2) our_attempt.wait_for(200ms);
    if (!has_read) transaction.read();
    const auto their_fence = transaction.commit();
    const auto lease = our_attempt.get();
    ASSERT_FALSE(lease && their_fence) << "two holders";
    const auto fence = lease ? std::optional(lease->fence()) : their_fence;
    EXPECT_TRUE(!fence || fences.insert(fence->value()).second) << "a fence twice";
    ours += lease ? 1 : 0;
    theirs += their_fence ? 1 : 0;
    if (their_fence) outside.remove("locks/key");
  }
  EXPECT_GT(ours, 0);
  EXPECT_GT(theirs, 0);
}

// ---------------------------------------------------------------------------------------------------------------------
// Waiting

// Through a proxy whose Listen streams the test feeds.
struct FirestoreWaiting : public FirestoreTest {
  FirestoreProxy proxy{emulator.address()};
  Locks locks = open(proxy.url(project, "&operation_timeout=20s"));

  FirestoreWaiting() {
    proxy.set_script([](const std::string&) { return FirestoreProxy::forward(); });
  }
  // One that waits for the key until it is told, and is about to.
  [[nodiscard]] std::future<Lease> waiter(const std::string& key) {
    // A retry alone would come far too late for the tests.
    constexpr AcquireOptions patient{
        .wait = {.timeout = 10min, .max_retries = 1000, .retry_delay = 5min, .max_delay = 5min}};
    const int before = proxy.awaited();
    const int reads = proxy.calls("BatchGetDocuments");
    auto waiting = locks.async_acquire(key, patient, asio::use_future);
    // It has looked, asked to be told, and looked again.
    EXPECT_TRUE(eventually([&] { return proxy.awaited() > before && proxy.calls("BatchGetDocuments") >= reads + 2; }));
    EXPECT_EQ(waiting.wait_for(50ms), std::future_status::timeout);
    return waiting;
  }
  void expect_served(std::future<Lease>& waiting) {
    ASSERT_EQ(waiting.wait_for(20s), std::future_status::ready);
    (void)waiting.get();
  }
};

void tell_deleted(std::int32_t target, const std::string& document, firestore::wire::ListenResponse& response) {
  response.mutable_document_delete()->set_document(document);
  response.mutable_document_delete()->add_removed_target_ids(target);
}
void tell_there(std::int32_t target, const std::string& document, firestore::wire::ListenResponse& response) {
  response.mutable_document_change()->mutable_document()->set_name(document);
  response.mutable_document_change()->add_target_ids(target);
}

TEST_F(FirestoreWaiting, OneStreamServesAllThatAClientWaitsFor) {
  constexpr int keys = 50;
  std::vector<std::future<Lease>> waiting;
  for (int i = 0; i < keys; ++i) {
    put_lock("key" + std::to_string(i), LockId::generate(), 1h);
    waiting.push_back(waiter("key" + std::to_string(i)));
  }
  EXPECT_EQ(proxy.calls("Listen"), 1);
  EXPECT_EQ(proxy.streams(), 1);
  for (int i = 0; i < keys; ++i) outside.remove("locks/key" + std::to_string(i));
  proxy.tell(tell_deleted);
  for (auto& one : waiting) expect_served(one);
  EXPECT_TRUE(eventually([&] { return proxy.awaited() == 0; })) << "what nobody awaits is asked for no longer";
}

TEST_F(FirestoreWaiting, AWaiterIsToldInWhateverWayTheServerTells) {
  const std::vector<std::function<void(std::int32_t, const std::string&, firestore::wire::ListenResponse&)>> ways = {
      tell_deleted,
      [](std::int32_t, const std::string& document, firestore::wire::ListenResponse& response) {
        response.mutable_document_remove()->set_document(document);
      },
      [](std::int32_t target, const std::string&, firestore::wire::ListenResponse& response) {
        response.mutable_filter()->set_target_id(target);
      },
      [](std::int32_t target, const std::string&, firestore::wire::ListenResponse& response) {
        response.mutable_target_change()->set_target_change_type(firestore::wire::TargetChange::RESET);
        response.mutable_target_change()->add_target_ids(target);
      },
      // It tells no more of this target, and says why.
      [](std::int32_t target, const std::string&, firestore::wire::ListenResponse& response) {
        response.mutable_target_change()->set_target_change_type(firestore::wire::TargetChange::REMOVE);
        response.mutable_target_change()->add_target_ids(target);
        response.mutable_target_change()->mutable_cause()->set_code(grpc::StatusCode::RESOURCE_EXHAUSTED);
      }};
  for (const auto& way : ways) {
    put_lock("key", LockId::generate(), 1h);
    auto waiting = waiter("key");
    outside.remove("locks/key");
    proxy.tell(way);
    expect_served(waiting);
  }
}

TEST_F(FirestoreWaiting, ALockThatWasThereForAMomentIsLookedAtAgain) {
  put_lock("key", LockId::generate(), 1h);
  auto waiting = waiter("key");
  // The server says that it is gone when somebody else has taken it again, and says nothing when that one goes, too:
  // gone it was, and gone it is.
  const int reads = proxy.calls("BatchGetDocuments");
  proxy.tell(tell_deleted);
  ASSERT_TRUE(eventually([&] { return proxy.calls("BatchGetDocuments") > reads; }));
  outside.remove("locks/key");
  expect_served(waiting);
}

TEST_F(FirestoreWaiting, ALockThatIsThereIsNotLookedAt) {
  put_lock("key", LockId::generate(), 1h);
  auto waiting = waiter("key");
  const int reads = proxy.calls("BatchGetDocuments");
  proxy.tell(tell_there);
  EXPECT_EQ(waiting.wait_for(300ms), std::future_status::timeout);
  EXPECT_EQ(proxy.calls("BatchGetDocuments"), reads);
  outside.remove("locks/key");
  proxy.tell(tell_deleted);
  expect_served(waiting);
}

TEST_F(FirestoreWaiting, AStreamThatIsCutIsOpenedAgain) {
  put_lock("key", LockId::generate(), 1h);
  auto waiting = waiter("key");
  const int reads = proxy.calls("BatchGetDocuments");
  proxy.cut_streams();
  ASSERT_TRUE(eventually([&] { return proxy.calls("Listen") == 2 && proxy.awaited() == 1; }));
  ASSERT_TRUE(eventually([&] { return proxy.calls("BatchGetDocuments") >= reads + 2; }))
      << "nobody knows what was missed";
  outside.remove("locks/key");
  proxy.tell(tell_deleted);
  expect_served(waiting);
}

TEST_F(FirestoreWaiting, AServerThatCannotTellIsNotAskedAllTheTime) {
  for (const auto code : {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::RESOURCE_EXHAUSTED}) {
    proxy.set_script([code](const std::string& method) {
      return method == "Listen" ? FirestoreProxy::refuse(code) : FirestoreProxy::forward();
    });
    put_lock("key", LockId::generate(), 1h);
    const int before = proxy.calls();
    expect_error(ErrorCode::acquisition_timeout, [&] {
      (void)locks.acquire("key",
                          {.wait = {.timeout = 2s, .max_retries = 1000, .retry_delay = 200ms, .max_delay = 200ms}});
    });
    // Ten retries or a few more, each with a look and perhaps an attempt to listen.
    EXPECT_LT(proxy.calls() - before, 60);
  }
}

TEST_F(FirestoreWaiting, AReleaseByTheOtherLibraryWakesAWaiter) {
  auto direct = client();
  put_lock("key", LockId::generate(), 1h);
  auto waiting = direct.async_acquire(
      "key", {.wait = {.timeout = 10min, .max_retries = 1000, .retry_delay = 5min, .max_delay = 5min}},
      asio::use_future);
  ASSERT_EQ(waiting.wait_for(500ms), std::future_status::timeout);
  outside.remove("locks/key");
  expect_served(waiting);
}

// ---------------------------------------------------------------------------------------------------------------------
// An emulator of its own, to be paused and killed

TEST(FirestoreRestart, CallersGetOverIt) {
  FirestoreEmulator emulator;
  auto locks = open(emulator.url("project", "&operation_timeout=2s"));
  auto others = open(emulator.url("project", "&operation_timeout=2s"));
  auto held = locks.acquire("held", {.ttl = 1h});
  EXPECT_EQ(locks.acquire("key").fence(), Fence(1));
  auto waiting = std::async(std::launch::async, [&] {
    return others.acquire("held", {.wait = {.timeout = 60s, .max_retries = 1000, .retry_delay = 1s}}).fence();
  });
  ASSERT_EQ(waiting.wait_for(500ms), std::future_status::timeout);

  emulator.kill();
  const auto error = error_of([&] { (void)locks.try_acquire("key"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable) << error->what();
  EXPECT_FALSE(error->in_doubt()) << "nothing was sent";

  emulator.start();
  // What it knew was in its memory: locks are gone, and fences start anew. A Firestore loses neither.
  EXPECT_EQ(locks.acquire("key", {.wait = {.timeout = 20s, .max_retries = 1000, .retry_delay = 100ms}}).fence(),
            Fence(1));
  ASSERT_EQ(waiting.wait_for(40s), std::future_status::ready);
  EXPECT_EQ(waiting.get(), Fence(1));
  held.detach();
}

TEST(FirestoreRestart, AServerThatSaysNothingCostsTheOperationTimeout) {
  FirestoreEmulator emulator;
  auto locks = open(emulator.url("project", "&operation_timeout=1s"));
  EXPECT_TRUE(locks.acquire("key", {.wait = {.timeout = 20s}}).release());
  emulator.pause();
  const auto start = steady_clock::now();
  expect_error(ErrorCode::network_timeout, [&] { (void)locks.try_acquire("key"); });
  EXPECT_LT(steady_clock::now() - start, 3s);
  emulator.resume();
  EXPECT_TRUE(locks.acquire("key", {.wait = {.timeout = 20s, .max_retries = 1000}}));
}

}  // namespace
}  // namespace syncguard::testing
