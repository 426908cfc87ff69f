// Hosts whose clocks differ from Firestore's, and networks that are too slow to tell.

#include "fixture.hpp"

#include <syncguard/backend.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace syncguard::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A client whose clock differs from Firestore's by `skew`, which the test may change.
struct SkewedClient {
  SkewedClient(const FirestoreTest& test, milliseconds skewed_by, FirestoreOptions options = {})
      : skew(std::make_shared<std::atomic<milliseconds>>(skewed_by)),
        locks(backend(test, std::move(options)), with_long_timeout(client_options())) {}

  std::unique_ptr<Backend> backend(const FirestoreTest& test, FirestoreOptions options) const {
    options.project = test.project;
    if (options.emulator.empty()) options.emulator = test.emulator.address();
    options.operation_timeout = 60s;
    options.clock = [skew = skew] { return system_now() + skew->load(); };
    return make_firestore_backend(std::move(options), warnings.log);
  }
  ClientOptions client_options() {
    ClientOptions options;
    options.telemetry.emplace();
    options.telemetry->on_event = [this](const LockEvent& event) {
      const std::lock_guard lock(mutex);
      last_skew = event.clock_skew;
    };
    return options;
  }

  // A slow reply hides a part of the skew: repeats the request until the client knows of a skew of at_least.
  void expect_skew(milliseconds at_least) const {
    EXPECT_TRUE(eventually([&] {
      (void)locks.is_locked("key");
      return std::chrono::abs(locks.admin().clock_skew().value()) >= at_least;
    }));
  }
  // Makes a few requests, of which one is fast enough to compare the clocks.
  void compare_clocks() const {
    for (int i = 0; i < 10; ++i) (void)locks.is_locked("another");
  }

  std::shared_ptr<std::atomic<milliseconds>> skew;
  Warnings warnings;
  std::mutex mutex;
  std::optional<milliseconds> last_skew;
  Locks locks;
};

struct FirestoreClock : public FirestoreTest {
  // A network between the client and Firestore, where reads by key take this long.
  FirestoreProxy network{emulator.address()};
  std::atomic<milliseconds> delay{0ms};

  FirestoreClock() {
    network.set_script([this](const std::string& method) {
      if (method == "BatchGetDocuments") std::this_thread::sleep_for(delay.load());
      return FirestoreProxy::forward();
    });
  }
  [[nodiscard]] FirestoreOptions through_network() const {
    FirestoreOptions options;
    options.emulator = network.address();
    return options;
  }
  // Expects that the client refuses to grant a lock, for this reason.
  static void expect_no_grant(const Locks& locks, const std::string& reason) {
    const auto error = error_of([&] { (void)locks.try_acquire("key"); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
    EXPECT_FALSE(error->in_doubt());
    EXPECT_THAT(error->what(), HasSubstr(reason));
  }
};

// More than this, and half of it is more than a clock may be off.
constexpr milliseconds too_slow = 1s;

// ---------------------------------------------------------------------------------------------------------------------
// Grants and extensions

TEST_F(FirestoreClock, AccurateClockCausesNoWarning) {
  for (const auto skew : {-150ms, 0ms, 150ms}) {
    SkewedClient client(*this, skew);
    EXPECT_FALSE(client.locks.admin().clock_skew()) << "unknown before the first reply";
    EXPECT_TRUE(client.locks.acquire("key").release());
    ASSERT_TRUE(client.locks.admin().clock_skew());
    EXPECT_LE(std::chrono::abs(*client.locks.admin().clock_skew()), 150ms);
    EXPECT_THAT(client.warnings.all(), IsEmpty());
  }
}

TEST_F(FirestoreClock, SkewOf200MillisecondsCausesWarning) {
  for (const auto skew : {-300ms, 300ms}) {
    SkewedClient client(*this, skew);
    client.expect_skew(200ms);
    EXPECT_TRUE(client.locks.acquire("key").release());
    EXPECT_THAT(client.warnings.all(),
                ElementsAre(HasSubstr(skew > 0ms ? "ahead of Firestore's" : "behind Firestore's")));
    ASSERT_TRUE(client.locks.admin().clock_skew());
    EXPECT_EQ(*client.locks.admin().clock_skew() > 0ms, skew > 0ms);
    client.locks.close();
    const std::lock_guard lock(client.mutex);
    EXPECT_TRUE(client.last_skew) << "events must carry the skew";
  }
}

// A holder that is 0.7 s behind and another client that is 0.7 s ahead would hold the same lock for 0.4 s: the
// tolerance of one second covers both skews together.
TEST_F(FirestoreClock, SkewOf500MillisecondsBlocksGrantsAndExtends) {
  auto lease = client().acquire("held", {.ttl = 20s});
  for (const auto skew : {-700ms, 700ms, -5000ms, 5000ms}) {
    const SkewedClient client(*this, skew);
    expect_no_grant(client.locks, "NTP");
    client.expect_skew(500ms);
    expect_no_grant(client.locks, skew > 0ms ? "ahead of Firestore's, and" : "behind Firestore's, and");
    expect_error(ErrorCode::service_unavailable, [&] { (void)client.locks.extend(lease.id(), 20s); });
    EXPECT_TRUE(client.locks.is_locked("held"));
  }
  EXPECT_THAT(outside.list("locks"), ElementsAre("held"));
  EXPECT_THAT(outside.list("fence_counters"), ElementsAre("fence:held"));
  EXPECT_TRUE(lease.release());
}

TEST_F(FirestoreClock, ReleaseWorksWithAnySkew) {
  for (const auto skew : {-5s, 5s}) {
    const auto lease = client().acquire("held", {.ttl = 1min});
    EXPECT_TRUE(SkewedClient(*this, skew).locks.release(lease.id()));
  }
}

// Otherwise a client whose clock is ahead could be granted the lock while this one still holds it.
TEST_F(FirestoreClock, HolderThatIsBehindShortensItsDeadline) {
  const SkewedClient behind(*this, -300ms);
  auto lease = behind.locks.acquire("key", {.ttl = 10s});
  EXPECT_LE(lease.deadline(), BootClock::now() + 10s - 300ms);
  ASSERT_TRUE(lease.extend(20s));
  EXPECT_LE(lease.deadline(), BootClock::now() + 20s - 300ms);
  EXPECT_GT(lease.deadline(), BootClock::now()) << "but not to nothing";

  const SkewedClient ahead(*this, 300ms);
  auto other = ahead.locks.acquire("other", {.ttl = 1h});
  EXPECT_GT(other.deadline(), BootClock::now() + 59min);
}

TEST_F(FirestoreClock, OppositeClocksNeverMakeTwoHolders) {
  const SkewedClient behind(*this, -400ms);
  const SkewedClient ahead(*this, 400ms);
  behind.compare_clocks();
  ahead.compare_clocks();
  for (int round = 0; round < 3; ++round) {
    auto lease = behind.locks.acquire("key", {.ttl = 500ms});
    const auto deadline = lease.deadline();
    const auto next =
        ahead.locks.acquire("key", {.ttl = 500ms, .wait = {.timeout = 1min, .retry_delay = 5ms, .max_delay = 5ms}});
    EXPECT_GE(BootClock::now(), deadline);
    EXPECT_GT(next.fence(), lease.fence());
  }
}

TEST_F(FirestoreClock, FencesFollowFirestoresClock) {
  const SkewedClient ahead(*this, 400ms);
  // A slow reply hides a part of the skew.
  EXPECT_TRUE(succeeds_once([&] {
    const auto fence = ahead.locks.acquire("key").fence().value();
    return fence < static_cast<std::uint64_t>((system_now() + 200ms).time_since_epoch().count() * 10);
  })) << "otherwise counters would be ahead of the clocks that protect them";
}

// ---------------------------------------------------------------------------------------------------------------------
// Slow networks

TEST_F(FirestoreClock, NetworkThatIsTooSlowToTellBlocksGrants) {
  delay = too_slow;
  const SkewedClient client(*this, 0ms, through_network());
  expect_no_grant(client.locks, "replies take too long");
  EXPECT_EQ(network.calls("BatchGetDocuments"), 3) << "the clocks must be compared again before a refusal";
  EXPECT_EQ(network.calls("Commit"), 0);
  EXPECT_EQ(client.locks.admin().clock_skew(), 0ms);
}

TEST_F(FirestoreClock, ClocksAreComparedAgainBeforeARefusal) {
  std::atomic<int> replies{0};
  network.set_script([&](const std::string& method) {
    if (method == "BatchGetDocuments" && replies++ == 0) std::this_thread::sleep_for(too_slow);
    return FirestoreProxy::forward();
  });
  const SkewedClient client(*this, 0ms, through_network());
  EXPECT_TRUE(client.locks.try_acquire("key"));
  EXPECT_GE(network.calls("BatchGetDocuments"), 2);
}

TEST_F(FirestoreClock, SlowReplyDoesNotBlockAClientThatKnowsItsClock) {
  const SkewedClient client(*this, 100ms, through_network());
  client.compare_clocks();
  delay = too_slow;
  const auto before = network.calls("BatchGetDocuments");
  EXPECT_TRUE(client.locks.try_acquire("key"));
  EXPECT_EQ(network.calls("BatchGetDocuments"), before + 1);
}

TEST_F(FirestoreClock, ClockThatIsSetIsNoticedDespiteASlowNetwork) {
  for (const auto step : {-700ms, 700ms}) {
    delay = 0ms;
    const SkewedClient client(*this, 0ms, through_network());
    client.compare_clocks();
    auto lease = client.locks.acquire("held", {.ttl = 1min});
    delay = too_slow;
    *client.skew = step;
    expect_no_grant(client.locks, step > 0ms ? "ahead of Firestore's, and" : "behind Firestore's, and");
    expect_error(ErrorCode::service_unavailable, [&] { (void)lease.extend(1min); });
    *client.skew = 0ms;
    EXPECT_TRUE(client.locks.try_acquire("key")) << "the clock was set back to the right time";
    EXPECT_TRUE(lease.release());
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Cleanup

TEST_F(FirestoreClock, CleanupObeysTheSameRule) {
  FirestoreOptions options = through_network();
  options.cleanup_in_is_locked = true;
  const auto id = LockId::generate();
  // Live in the tolerance, but expired two seconds ago for a client that is 1.5 s ahead.
  put_lock("live", id, -500ms);
  {
    const SkewedClient ahead(*this, 1600ms, options);
    (void)ahead.locks.is_locked("live");
    expect_error(ErrorCode::service_unavailable, [&] { (void)ahead.locks.admin().clean_up(); });
    EXPECT_TRUE(eventually([&] { return network.calls("BatchGetDocuments") >= 2; })) << "the cleanup has begun";
  }
  // A client with an accurate clock cleans up. The other one's cleanup would have ended before.
  put_lock("dead", LockId::generate(), -5s);
  const SkewedClient accurate(*this, 0ms, options);
  (void)accurate.locks.is_locked("dead");
  EXPECT_TRUE(eventually([&] { return outside.list("locks") == std::vector<std::string>{"live"}; }));
  EXPECT_EQ(network.calls("Commit"), 1);
}

TEST_F(FirestoreClock, CleanupComparesClocksAgainOnASlowNetwork) {
  std::atomic<int> replies{0};
  network.set_script([&](const std::string& method) {
    if (method == "BatchGetDocuments" && replies++ < 2) std::this_thread::sleep_for(too_slow);
    return FirestoreProxy::forward();
  });
  FirestoreOptions options = through_network();
  options.cleanup_in_is_locked = true;
  put_lock("dead", LockId::generate(), -5s);
  const SkewedClient client(*this, 0ms, options);
  EXPECT_FALSE(client.locks.is_locked("dead"));
  EXPECT_TRUE(eventually([&] { return outside.list("locks").empty(); }));
}

TEST_F(FirestoreClock, ReleaseByAClientAheadRemovesNoOtherDocuments) {
  const auto id = LockId::generate();
  put_lock("released", id, 1h);
  put_lock("another", id, -1s);
  EXPECT_TRUE(SkewedClient(*this, 5s).locks.release(id));
  EXPECT_THAT(outside.list("locks"), ElementsAre("another"));
}

}  // namespace
}  // namespace syncguard::testing
