// The operations of a backend, without waiting: acquire, release, extend, is_locked, lookup, clean_up.

#include "contract/contract.hpp"
#include "contract/parts.hpp"
#include "support/is_granted.hpp"

#include <barrier>

namespace syncguard::testing {

const bool parts::operations = true;

namespace {

// The whole ttl. If clients' clocks decide, less by as much as this client's may be behind, which is below 500 ms.
void expect_remaining(std::chrono::milliseconds remaining, std::chrono::milliseconds ttl, BackendFixture& store) {
  EXPECT_LE(remaining, ttl);
  EXPECT_GT(remaining, ttl - (store.time_authority() == TimeAuthority::client ? 500ms : 1ms));
}

TEST_P(Contract, GrantsFreeKeyAndReportsRemainingTime) {
  RawBackend backend(store().make_backend({}));
  const auto before = store().now();
  const auto reply = granted(backend.acquire("key", LockId::generate(), 30s));
  const auto after = store().now();
  EXPECT_GE(reply.expires_at, before + 30s);
  EXPECT_LE(reply.expires_at, after + 30s);
  expect_remaining(reply.remaining, 30s, store());
  EXPECT_GT(reply.fence, Fence());
}

TEST_P(Contract, HeldKeyIsContendedAndReportsRemainingTime) {
  RawBackend backend(store().make_backend({}));
  granted(backend.acquire("key", LockId::generate(), 30s));
  const auto reply = backend.acquire("key", LockId::generate(), 30s);
  ASSERT_TRUE(contended(reply));
  const auto free_in = std::get<Contended>(reply).free_in;
  EXPECT_LE(free_in, 31s);
  EXPECT_GT(free_in, 10s);
}

TEST_P(Contract, DifferentKeysAreIndependent) {
  RawBackend backend(store().make_backend({}));
  granted(backend.acquire("one", LockId::generate(), 30s));
  granted(backend.acquire("other", LockId::generate(), 30s));
  granted(backend.acquire("ONE", LockId::generate(), 30s));
}

TEST_P(Contract, CanonicallyEqualSpellingsAreTheSameKey) {
  RawBackend backend(store().make_backend({}));
  granted(backend.acquire("\xc3\xa9", LockId::generate(), 30s));
  EXPECT_TRUE(contended(backend.acquire("e\xcc\x81", LockId::generate(), 30s)));
}

TEST_P(Contract, AcceptsEveryValidKey) {
  RawBackend backend(store().make_backend({}));
  for (const std::string& text :
       {std::string("with space"), std::string("slash/in/key"), std::string("a:b:c"),
        std::string("quote\"back\\slash\ttab\n'"), std::string("."), std::string("__x__"),
        std::string("\xf0\x9f\x94\x92"), std::string("{tag}key"), std::string("%2F"), std::string(512, 'x')}) {
    const auto id = LockId::generate();
    granted(backend.acquire(text, id, 30s));
    EXPECT_TRUE(backend.is_locked(text)) << text;
    const auto record = backend.lookup(id);
    ASSERT_TRUE(record) << text;
    EXPECT_EQ(record->key.str(), text);
    EXPECT_TRUE(released(backend.release(id))) << text;
  }
}

TEST_P(Contract, LocksAreNotReentrant) {
  auto locks = open_client(store());
  const auto lease = locks.try_acquire("key");
  ASSERT_TRUE(lease);
  EXPECT_FALSE(is_granted(locks.try_acquire("key")));
}

TEST_P(Contract, RepeatedAcquireReturnsSameReply) {
  RawBackend backend(store().make_backend({}));
  const auto id = LockId::generate();
  const auto first = granted(backend.acquire("key", id, 30s));
  store().let_pass(20ms);
  const auto second = granted(backend.acquire("key", id, 30s));
  EXPECT_EQ(second.fence, first.fence);
  EXPECT_EQ(second.expires_at, first.expires_at);
  EXPECT_LT(second.remaining, first.remaining);
  EXPECT_EQ(store().fence_counter("key"), first.fence.value());
}

// As after the store's clock was set back between the two.
TEST_P(Contract, RepeatedAcquireReportsAtMostItsTtlAsRemaining) {
  RawBackend backend(store().make_backend({}));
  const auto id = LockId::generate();
  const auto first = granted(backend.acquire("key", id, 60s));
  const auto second = granted(backend.acquire("key", id, 10s));
  EXPECT_EQ(second.expires_at, first.expires_at);
  EXPECT_LE(second.remaining, 10s);
  EXPECT_GT(second.remaining, 0s);
}

TEST_P(Contract, RepeatedAcquireAfterReleaseIsANewGrant) {
  RawBackend backend(store().make_backend({}));
  const auto id = LockId::generate();
  const auto first = granted(backend.acquire("key", id, 30s));
  ASSERT_TRUE(released(backend.release(id)));
  EXPECT_GT(granted(backend.acquire("key", id, 30s)).fence, first.fence);
}

TEST_P(Contract, ReleaseSucceedsOnceAndFreesKey) {
  RawBackend backend(store().make_backend({}));
  const auto id = LockId::generate();
  granted(backend.acquire("key", id, 30s));
  EXPECT_TRUE(released(backend.release(id)));
  EXPECT_FALSE(backend.is_locked("key"));
  const auto again = backend.release(id);
  ASSERT_FALSE(released(again)) << "a lock must be released at most once";
  EXPECT_EQ(std::get<Missing>(again), Missing::not_found);
  granted(backend.acquire("key", LockId::generate(), 30s));
}

TEST_P(Contract, ConcurrentReleasesOfSameIdSucceedOnce) {
  constexpr int callers = 6;
  constexpr int rounds = 5;
  std::vector<Locks> clients;
  for (int i = 0; i < 2; ++i) clients.push_back(open_client(store()));
  for (int round = 0; round < rounds; ++round) {
    const LockId id = clients[0].acquire("key").detach();
    std::barrier together(callers);
    std::vector<std::future<bool>> outcomes;
    for (std::size_t i = 0; i < callers; ++i) {
      outcomes.push_back(std::async(std::launch::async, [&, i] {
        together.arrive_and_wait();
        return clients[i % clients.size()].release(id);
      }));
    }
    int successes = 0;
    for (auto& outcome : outcomes) successes += outcome.get() ? 1 : 0;
    EXPECT_EQ(successes, 1);
    EXPECT_FALSE(clients[0].is_locked("key"));
  }
}

TEST_P(Contract, ReleaseAndExtendOfUnknownIdAreNotFound) {
  RawBackend backend(store().make_backend({}));
  EXPECT_EQ(std::get<Missing>(backend.release(LockId::generate())), Missing::not_found);
  EXPECT_EQ(std::get<Missing>(backend.extend(LockId::generate(), 30s)), Missing::not_found);
}

TEST_P(Contract, FormerHolderCannotAffectNewLock) {
  RawBackend backend(store().make_backend({}));
  const auto old_id = LockId::generate();
  const auto new_id = LockId::generate();
  granted(backend.acquire("key", old_id, 1ms));
  store().let_pass(1100ms);
  const auto taken = granted(backend.acquire("key", new_id, 30s));
  EXPECT_FALSE(released(backend.release(old_id)));
  EXPECT_FALSE(extended(backend.extend(old_id, 1ms)));
  EXPECT_FALSE(backend.lookup(old_id));
  const auto record = backend.lookup(Key("key"));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->lock_id, new_id);
  EXPECT_EQ(record->expires_at, taken.expires_at);
  EXPECT_TRUE(released(backend.release(new_id)));
}

TEST_P(Contract, LockStaysLiveForToleranceAfterExpiry) {
  RawBackend backend(store().make_backend({}));
  LockId id = LockId::generate();
  const auto lives_within_tolerance = [&] {
    id = LockId::generate();
    granted(backend.acquire("key", id, 100ms));
    store().let_pass(200ms);
    const bool is_locked = backend.is_locked("key");
    const bool is_found = backend.lookup(Key("key")) && backend.lookup(id);
    const auto other = backend.acquire("key", LockId::generate(), 100ms);
    const auto again = backend.acquire("key", id, 100ms);
    if (contended(again) || granted(again).remaining > -100ms) {
      store().let_pass(1200ms);
      return false;
    }
    // The lock's ttl has ended, and the lock is still held.
    EXPECT_TRUE(is_locked);
    EXPECT_TRUE(is_found);
    EXPECT_TRUE(contended(other) && std::get<Contended>(other).free_in <= 900ms);
    return true;
  };
  ASSERT_TRUE(succeeds_once(lives_within_tolerance));

  store().let_pass(1000ms);
  EXPECT_FALSE(backend.is_locked("key"));
  EXPECT_FALSE(backend.lookup(Key("key")));
  EXPECT_FALSE(backend.lookup(id));
  granted(backend.acquire("key", LockId::generate(), 30s));
}

TEST_P(Contract, ExtendReplacesRemainingTime) {
  RawBackend backend(store().make_backend({}));
  const auto id = LockId::generate();
  const auto first = granted(backend.acquire("key", id, 30s));

  const auto before = store().now();
  const auto longer = std::get<Extended>(backend.extend(id, 60s));
  EXPECT_GE(longer.expires_at, before + 60s);
  EXPECT_LE(longer.expires_at, store().now() + 60s);
  expect_remaining(longer.remaining, 60s, store());

  const auto shorter = std::get<Extended>(backend.extend(id, 5s));
  EXPECT_LT(shorter.expires_at, first.expires_at) << "extend must replace the remaining time, not add to it";
  const auto record = backend.lookup(id);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->expires_at, shorter.expires_at);
  EXPECT_EQ(record->fence, first.fence);
  EXPECT_EQ(record->acquired_at, first.expires_at - 30s);
}

TEST_P(Contract, ExtendWorksWithinToleranceAndNeverRevives) {
  RawBackend backend(store().make_backend({}));
  const auto too_late = LockId::generate();
  granted(backend.acquire("too late", too_late, 100ms));
  ASSERT_TRUE(succeeds_once([&] {
    const auto in_time = LockId::generate();
    // If the previous attempt was too late, its lock has expired and does not block this acquire.
    granted(backend.acquire("in time", in_time, 100ms));
    store().let_pass(300ms);
    return extended(backend.extend(in_time, 30s));
  }));
  store().let_pass(900ms);
  EXPECT_FALSE(extended(backend.extend(too_late, 30s)));
  EXPECT_FALSE(backend.is_locked("too late"));
  EXPECT_FALSE(released(backend.release(too_late)));
  EXPECT_TRUE(backend.is_locked("in time"));
}

TEST_P(Contract, IsLockedAndLookupChangeNothing) {
  RawBackend backend(store().make_backend({}));
  const auto id = LockId::generate();
  granted(backend.acquire("key", id, 30s));
  const auto before = backend.lookup(id);
  store().let_pass(5ms);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(backend.is_locked("key"));
    EXPECT_EQ(backend.lookup(id), before);
    EXPECT_EQ(backend.lookup(Key("key")), before);
  }
  EXPECT_FALSE(backend.is_locked("absent"));
  EXPECT_FALSE(backend.lookup(Key("absent")));
  EXPECT_FALSE(store().is_stored("absent"));
  EXPECT_EQ(store().fence_counter("absent"), 0U);
}

TEST_P(Contract, IsLockedRemovesNothingByDefault) {
  store().put({"key", LockId::generate(), store().now() - 1h, store().now() - 2h, Fence(3)});
  RawBackend backend(store().make_backend({}));
  EXPECT_FALSE(backend.is_locked("key"));
  EXPECT_TRUE(store().is_stored("key"));
}

TEST_P(Contract, CleanupInIsLockedRemovesOnlyOldLocksAndNeverCounters) {
  RawBackend backend(store().make_backend({.cleanup_in_is_locked = true}));
  store().set_fence_counter("dead", ahead_of_clock);
  store().put({"dead", LockId::generate(), store().now() - 1h, store().now() - 2h, Fence(ahead_of_clock)});
  EXPECT_FALSE(backend.is_locked("dead")) << "cleanup must not change the result";
  if (store().can_clean_up()) {
    EXPECT_TRUE(eventually([&] { return !store().is_stored("dead"); }));
  }
  EXPECT_EQ(store().fence_counter("dead"), ahead_of_clock);
  EXPECT_EQ(granted(backend.acquire("dead", LockId::generate(), 30s)).fence, Fence(ahead_of_clock + 1));
}

TEST_P(Contract, CleanupInIsLockedKeepsLocksAPendingExtendCouldReach) {
  EXPECT_TRUE(succeeds_once([&] {
    RawBackend backend(store().make_backend({.cleanup_in_is_locked = true}));
    (void)backend.lookup(Key("another"));  // connects
    store().put({"guarded", LockId::generate(), store().now() - 1100ms, store().now() - 1h, Fence(1)});
    EXPECT_FALSE(backend.is_locked("guarded"));
    std::this_thread::sleep_for(50ms);
    return store().is_stored("guarded");
  }));
}

// ---------------------------------------------------------------------------------------------------------------------
// Cleanup on request. A store that never needs cleanup reports that and does nothing.

TEST_P(Contract, CleanupRemovesOnlyLocksThatExpiredLongAgo) {
  RawBackend backend(store().make_backend({}));
  const auto put = [&](const Key& key, std::chrono::milliseconds expires_in) {
    store().put({key, LockId::generate(), store().now() + expires_in, store().now() - 24h, Fence(ahead_of_clock)});
  };
  store().set_fence_counter("long ago", ahead_of_clock);
  put("long ago", -3h);
  put("a while ago", -30min);
  put("live", 1h);
  const auto counted = backend.clean_up({.older_than = 1h, .mode = CleanupRequest::Mode::count});
  const auto reply = backend.clean_up({.older_than = 1h});
  if (!reply.nothing_to_do.empty()) {
    EXPECT_EQ(reply.count, 0U);
  } else {
    EXPECT_EQ(counted.count, 1U);
    EXPECT_EQ(reply.count, 1U) << "counting must not remove anything";
    EXPECT_FALSE(reply.more);
    EXPECT_FALSE(store().is_stored("long ago"));
    EXPECT_TRUE(store().is_stored("a while ago"));
    EXPECT_EQ(backend.clean_up({.older_than = 1h}).count, 0U);
    EXPECT_EQ(backend.clean_up({}).count, 1U);
    EXPECT_FALSE(store().is_stored("a while ago"));
  }
  EXPECT_TRUE(store().is_stored("live"));
  EXPECT_TRUE(backend.is_locked("live"));
  EXPECT_EQ(store().fence_counter("long ago"), ahead_of_clock) << "cleanup must keep fence counters";
  EXPECT_EQ(granted(backend.acquire("long ago", LockId::generate(), 30s)).fence, Fence(ahead_of_clock + 1));
}

TEST_P(Contract, CleanupKeepsLocksAPendingExtendCouldReach) {
  EXPECT_TRUE(succeeds_once([&] {
    RawBackend backend(store().make_backend({}));
    (void)backend.lookup(Key("another"));  // connects
    store().put({"guarded", LockId::generate(), store().now() - 1100ms, store().now() - 1h, Fence(1)});
    (void)backend.clean_up({});
    return store().is_stored("guarded");
  }));
}

TEST_P(Contract, CleanupIsBounded) {
  RawBackend backend(store().make_backend({}));
  constexpr std::size_t all = 5;
  for (std::size_t i = 0; i < all; ++i) {
    store().put({"key " + std::to_string(i), LockId::generate(), store().now() - 1h, store().now() - 2h, Fence(1)});
  }
  auto reply = backend.clean_up({.limit = 2});
  if (!reply.nothing_to_do.empty()) return;
  EXPECT_EQ(reply.count, 2U);
  EXPECT_TRUE(reply.more);
  std::size_t removed = reply.count;
  for (std::size_t calls = 0; reply.more && calls < all; ++calls) {
    reply = backend.clean_up({.limit = 2});
    removed += reply.count;
  }
  EXPECT_EQ(removed, all);
  EXPECT_FALSE(reply.more);
}

// More than a backend removes in one call.
TEST_P(Contract, CleanupCountsAllExpiredLocks) {
  RawBackend backend(store().make_backend({}));
  constexpr std::size_t all = 60;
  const auto now = store().now();
  for (std::size_t i = 0; i < all; ++i) {
    store().put({"key " + std::to_string(i), LockId::generate(), now - 1h, now - 2h, Fence(1)});
  }
  store().put({"live", LockId::generate(), now + 1h, now, Fence(1)});
  for (const std::size_t limit : {1U, 1000U}) {
    const auto reply = backend.clean_up({.limit = limit, .mode = CleanupRequest::Mode::count});
    if (!reply.nothing_to_do.empty()) return;
    EXPECT_EQ(reply.count, all);
    EXPECT_FALSE(reply.more);
  }
}

// One second of tolerance, and one more second for an extend that is already on its way.
TEST_P(Contract, CleanupWaitsTwoSecondsAfterExpiry) {
  if (store().can_clean_up()) {
    RawBackend backend(store().make_backend({.cleanup_in_is_locked = true}));
    EXPECT_TRUE(succeeds_once([&] {
      store().put({"guarded", LockId::generate(), store().now() - 1500ms, store().now() - 1h, Fence(1)});
      (void)backend.is_locked("guarded");
      std::this_thread::sleep_for(20ms);
      const bool spared = store().is_stored("guarded");
      std::this_thread::sleep_for(1100ms);  // at most one cleanup per second is allowed, by this host's clock
      return spared;
    }));
    store().put({"removed", LockId::generate(), store().now() - 2100ms, store().now() - 1h, Fence(1)});
    EXPECT_FALSE(backend.is_locked("removed"));
    EXPECT_TRUE(eventually([&] { return !store().is_stored("removed"); }));
  }
}

TEST_P(Contract, CleanupIsRateLimited) {
  if (store().can_clean_up()) {
    EXPECT_TRUE(succeeds_once([&] {
      RawBackend backend(store().make_backend({.cleanup_in_is_locked = true}));
      for (const auto& key : {Key("first"), Key("second")}) {
        store().put({key, LockId::generate(), store().now() - 1h, store().now() - 2h, Fence(1)});
      }
      const auto start = std::chrono::steady_clock::now();
      EXPECT_FALSE(backend.is_locked("first"));
      EXPECT_TRUE(eventually([&] { return !store().is_stored("first"); }));
      EXPECT_FALSE(backend.is_locked("second"));
      std::this_thread::sleep_for(20ms);
      const bool spared = store().is_stored("second");
      // A slower attempt proves nothing: the second cleanup was allowed.
      if (std::chrono::steady_clock::now() - start > 900ms) return false;
      EXPECT_TRUE(spared) << "there must be at most one cleanup per second";
      std::this_thread::sleep_for(1100ms);
      EXPECT_FALSE(backend.is_locked("second"));
      EXPECT_TRUE(eventually([&] { return !store().is_stored("second"); }));
      return true;
    }));
  }
}

TEST_P(Contract, ReadsRecordWrittenByAnotherClient) {
  RawBackend backend(store().make_backend({}));
  const LockRecord record{"key", LockId::generate(), store().now() + 30s, store().now(), Fence(ahead_of_clock)};
  store().set_fence_counter("key", ahead_of_clock);
  store().put(record);
  EXPECT_EQ(backend.lookup(Key("key")), record);
  EXPECT_EQ(backend.lookup(record.lock_id), record);
  EXPECT_TRUE(backend.is_locked("key"));
  EXPECT_TRUE(contended(backend.acquire("key", LockId::generate(), 30s)));
  EXPECT_TRUE(extended(backend.extend(record.lock_id, 60s)));
  EXPECT_TRUE(released(backend.release(record.lock_id)));
  EXPECT_EQ(granted(backend.acquire("key", LockId::generate(), 30s)).fence, Fence(ahead_of_clock + 1));
}

TEST_P(Contract, ClientsOfOneStoreExcludeEachOther) {
  auto one = open_client(store());
  auto other = open_client(store());
  auto lease = one.try_acquire("key");
  ASSERT_TRUE(lease);
  EXPECT_FALSE(is_granted(other.try_acquire("key")));
  EXPECT_TRUE(other.is_locked("key"));
  EXPECT_TRUE(other.release(lease->id())) << "any client can release a lock by its id";
  EXPECT_TRUE(other.try_acquire("key"));
}

TEST_P(Contract, LookupsAreSanitized) {
  auto locks = open_client(store());
  const auto lease = locks.try_acquire("secret name");
  ASSERT_TRUE(lease);
  for (const auto& info : {locks.lookup(Key("secret name")), locks.lookup(lease->id()),
                           locks.admin().get_by_key("secret name"), locks.admin().get_by_id(lease->id())}) {
    ASSERT_TRUE(info);
    EXPECT_EQ(info->key_hash, hash_key("secret name"));
    EXPECT_EQ(info->lock_id_hash, hash_key(lease->id().view()));
    EXPECT_EQ(info->expires_at, lease->expires_at());
    EXPECT_EQ(info->acquired_at, lease->expires_at() - 30s);
    EXPECT_EQ(info->fence, lease->fence());
  }
  for (const auto& record : {locks.admin().get_by_key_raw("secret name"), locks.admin().get_by_id_raw(lease->id())}) {
    ASSERT_TRUE(record);
    EXPECT_EQ(record->key, Key("secret name"));
    EXPECT_EQ(record->lock_id, lease->id());
  }
  EXPECT_TRUE(locks.admin().owns(lease->id()));
  EXPECT_FALSE(locks.admin().owns(LockId::generate()));
  EXPECT_FALSE(locks.lookup(Key("absent")));
  EXPECT_FALSE(locks.admin().get_by_id_raw(LockId::generate()));
}

TEST_P(Contract, AnyClientCanReleaseAndExtendById) {
  auto locks = open_client(store());
  auto lease = locks.try_acquire("key");
  ASSERT_TRUE(lease);
  const LockId id = lease->detach();
  EXPECT_FALSE(*lease);
  EXPECT_TRUE(locks.is_locked("key"));
  const auto expiry = locks.extend(id, 60s);
  ASSERT_TRUE(expiry);
  EXPECT_GT(*expiry, lease->expires_at());
  EXPECT_TRUE(locks.release(id));
  EXPECT_FALSE(locks.release(id));
  EXPECT_FALSE(locks.extend(id, 60s));
}

}  // namespace
}  // namespace syncguard::testing
