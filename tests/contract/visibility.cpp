// What operators see and do: labels of holders, lists, breaking locks, fence counters.

#include "contract/contract.hpp"
#include "contract/parts.hpp"

#include <unistd.h>

#include <algorithm>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace syncguard::testing {

const bool parts::visibility = true;

namespace {

TEST_P(Contract, LookupReturnsLabelOfHolder) {
  if (!store().stores_labels()) return;
  auto locks = open_client(store(), {.holder = "deploy@web-3/4711 ./deploy.sh"});
  auto lease = locks.acquire("key");
  EXPECT_EQ(locks.lookup(Key("key"))->holder, "deploy@web-3/4711 ./deploy.sh");
  EXPECT_EQ(locks.lookup(lease.id())->holder, "deploy@web-3/4711 ./deploy.sh");
  EXPECT_EQ(locks.admin().get_by_key_raw("key")->holder, "deploy@web-3/4711 ./deploy.sh");
  EXPECT_TRUE(lease.extend(60s));
  EXPECT_EQ(locks.lookup(Key("key"))->holder, "deploy@web-3/4711 ./deploy.sh") << "an extension keeps it";
}

TEST_P(Contract, HolderIsHostAndProcessByDefault) {
  if (!store().stores_labels()) return;
  auto locks = open_client(store());
  const auto lease = locks.acquire("key");
  EXPECT_THAT(locks.lookup(Key("key"))->holder, ::testing::EndsWith("/" + std::to_string(getpid())));
}

TEST_P(Contract, EmptyHolderStoresNothing) {
  auto locks = open_client(store(), {.holder = ""});
  const auto lease = locks.acquire("key");
  EXPECT_EQ(locks.lookup(Key("key"))->holder, "");
}

TEST_P(Contract, LocksWithoutLabelAreReadable) {
  const auto now = store().now();
  const LockRecord record{.key = "key",
                          .lock_id = LockId::generate(),
                          .expires_at = now + 1min,
                          .acquired_at = now,
                          .fence = Fence(ahead_of_clock)};
  store().put(record);
  auto locks = open_client(store());
  EXPECT_EQ(locks.admin().get_by_key_raw("key"), record);
  EXPECT_EQ(locks.admin().get_by_id_raw(record.lock_id), record);
}

TEST_P(Contract, LabelsKeepEveryCharacter) {
  if (!store().stores_labels()) return;
  std::string longest;
  while (longest.size() < 256) longest += "\xf0\x9f\x94\x92";
  for (const std::string& label : {std::string("quote\" back\\slash 'single' %s {x} $1 ,"), std::string("\xc3\xa9"),
                                   std::string("e\xcc\x81 is not composed"), longest, std::string(256, 'x')}) {
    auto locks = open_client(store(), {.holder = label});
    auto lease = locks.acquire("key");
    EXPECT_EQ(locks.lookup(Key("key"))->holder, label);
    EXPECT_TRUE(lease.extend(30s));
    EXPECT_EQ(locks.lookup(Key("key"))->holder, label);
    EXPECT_TRUE(lease.release());
  }
}

TEST_P(Contract, RejectsInvalidLabels) {
  for (const std::string& label :
       {std::string(257, 'x'), std::string("\xff"), std::string("a\nb"), std::string("\x1b[2J"), std::string("\x7f"),
        std::string("\xc2\x9b"), std::string("a\0b", 3)}) {
    expect_error(ErrorCode::invalid_argument, [&] { (void)open_client(store(), {.holder = label}); });
  }
}

TEST_P(Contract, NextHolderDoesNotInheritLabel) {
  RawBackend backend(store().make_backend({}));
  const auto limits = RawBackend::limits_for({});
  const AcquireRequest labeled{.key = "key", .lock_id = LockId::generate(), .ttl = 1ms, .holder = "first"};
  granted(backend.run((*backend).acquire(labeled, limits)));
  store().let_pass(1100ms);
  granted(backend.acquire("key", LockId::generate(), 1min));
  EXPECT_EQ(backend.lookup("key")->holder, "");
}

// ---------------------------------------------------------------------------------------------------------------------
// Lists

// All pages, by key.
std::map<std::string, ListedLock> list_all(const Locks& locks, const std::string& prefix, std::size_t limit) {
  std::map<std::string, ListedLock> found;
  std::string cursor;
  do {
    const auto page = locks.admin().list({.prefix = prefix, .limit = limit, .cursor = cursor});
    for (const auto& lock : page.locks) found.insert_or_assign(lock.key.str(), lock);
    cursor = page.cursor;
  } while (!cursor.empty());
  return found;
}

std::vector<std::string> keys_of(const std::map<std::string, ListedLock>& locks) {
  std::vector<std::string> keys;
  for (const auto& [key, lock] : locks) keys.push_back(key);
  return keys;
}

TEST_P(Contract, ListReturnsEveryLiveLockInPages) {
  if (!store().supports_administration()) return;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < store().many_locks(); ++i) {
    auto number = std::to_string(i);
    keys.push_back("many:" + number.insert(0, 5 - number.size(), '0'));
  }
  {
    RawBackend backend(store().make_backend({}));
    backend.acquire_all(keys, 1h);
    granted(backend.acquire("other", LockId::generate(), 1h));
  }
  const auto locks = open_client(store());
  for (const std::size_t limit : {std::size_t(70), std::size_t(1000)}) {
    const auto found = list_all(locks, "many:", limit);
    EXPECT_EQ(keys_of(found), keys) << limit;
  }
  EXPECT_EQ(list_all(locks, "", 500).size(), keys.size() + 1);
  EXPECT_TRUE(list_all(locks, "many:x", 500).empty());
}

TEST_P(Contract, ListDescribesLocks) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store(), {.holder = "web-3/4711"});
  const auto before = store().now();
  const auto lease = locks.acquire("key", {.ttl = 1min});
  const auto page = locks.admin().list();
  const auto after = store().now();
  ASSERT_EQ(page.locks.size(), 1U);
  const auto& lock = page.locks[0];
  EXPECT_EQ(lock.key, Key("key"));
  EXPECT_EQ(lock.holder, "web-3/4711");
  EXPECT_EQ(lock.fence, lease.fence());
  EXPECT_EQ(lock.expires_at, lease.expires_at());
  EXPECT_EQ(lock.acquired_at, lease.expires_at() - 1min);
  EXPECT_EQ(lock.waiters.value_or(0), 0U);
  EXPECT_GE(page.now, before);
  EXPECT_LE(page.now, after);
  EXPECT_EQ(page.cursor, "");
}

TEST_P(Contract, ListFindsKeysAndPrefixesWithOddCharacters) {
  if (!store().supports_administration()) return;
  std::vector<std::string> keys = {
      "a*b",    "a?b",  "a[b]", "a[^b]",     "a%b",       "a_b",  "aXb",       "a\\b",
      "a\\\\b", "a-b",  "a^b",  "a{b}",      "a'b",       "a\"b", "a\nb",      "a/b",
      ".",      "..",   "*",    "__x__",     "\xc3\xa9t", "e",    "%2F",       "a b",
      "$1",     "{a}b", "a:b",  "fence:key", "id:key",    "~",    "\x7f\x01x", "\xf0\x9f\x94\x92"};
  {
    RawBackend backend(store().make_backend({}));
    backend.acquire_all(keys, 1h);
  }
  std::ranges::sort(keys);
  const auto locks = open_client(store());
  EXPECT_EQ(keys_of(list_all(locks, "", 5)), keys);
  std::vector<std::string> prefixes = keys;
  for (const auto& key : keys) prefixes.push_back(key.substr(0, 2));
  for (const auto& prefix : prefixes) {
    if (static_cast<unsigned char>(prefix.back()) >= 0x80 && prefix.size() != 4 && prefix != "\xc3\xa9") continue;
    std::vector<std::string> expected;
    std::ranges::copy_if(keys, std::back_inserter(expected),
                         [&](const std::string& key) { return key.starts_with(prefix); });
    EXPECT_EQ(keys_of(list_all(locks, prefix, 7)), expected) << prefix;
  }
  EXPECT_EQ(keys_of(list_all(locks, "e\xcc\x81", 7)), (std::vector<std::string>{"\xc3\xa9t"})) << "normalized";
}

TEST_P(Contract, ListLeavesOutFreeKeys) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store());
  const auto long_ago = store().now() - 1min;
  store().put({.key = "expired",
               .lock_id = LockId::generate(),
               .expires_at = long_ago + 1s,
               .acquired_at = long_ago,
               .fence = Fence(1)});
  EXPECT_TRUE(locks.acquire("released").release());
  const auto lease = locks.acquire("held");
  EXPECT_EQ(keys_of(list_all(locks, "", 100)), (std::vector<std::string>{"held"}));
}

TEST_P(Contract, ListRejectsInvalidOptions) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store());
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.admin().list({.limit = 0}); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.admin().list({.limit = ListOptions::max_limit + 1}); });
  expect_error(ErrorCode::invalid_argument, [&] { (void)locks.admin().list({.prefix = "\xff"}); });
}

TEST_P(Contract, WaitersAreCounted) {
  if (!store().supports_administration() || !store().keeps_order()) return;
  auto locks = open_client(store());
  auto other = open_client(store());
  auto lease = locks.acquire("key", {.ttl = 10min});
  std::thread waiter([&] { (void)other.acquire("key", {.wait = {.timeout = 10min}}); });
  EXPECT_TRUE(eventually([&] { return locks.admin().inspect("key").waiters == 1U; }));
  EXPECT_EQ(locks.admin().list().locks.at(0).waiters, 1U);
  EXPECT_TRUE(lease.release());
  waiter.join();
}

// ---------------------------------------------------------------------------------------------------------------------
// One key

TEST_P(Contract, InspectShowsLockAndFenceCounter) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store(), {.holder = "web-3/4711"});
  const auto unused = locks.admin().inspect("key");
  EXPECT_TRUE(unused.holders.empty());
  EXPECT_EQ(unused.fence, Fence());
  auto lease = locks.acquire("key");
  const auto held = locks.admin().inspect("key");
  ASSERT_EQ(held.holders.size(), 1U);
  EXPECT_EQ(held.holders[0].label, "web-3/4711");
  EXPECT_EQ(held.holders[0].fence, lease.fence());
  EXPECT_EQ(held.fence, lease.fence());
  EXPECT_GT(held.now, held.holders[0].expires_at - 30s - 1min);
  EXPECT_TRUE(lease.release());
  const auto released = locks.admin().inspect("key");
  EXPECT_TRUE(released.holders.empty());
  EXPECT_EQ(released.fence, lease.fence());
  EXPECT_EQ(locks.admin().inspect("key").fence, lease.fence());
}

TEST_P(Contract, BreakReleasesOnlyLockWithNamedFence) {
  if (!store().supports_administration()) return;
  std::vector<std::string> warnings;
  std::mutex mutex;
  auto locks = open_client(store(), {.log = Log([&](LogLevel, std::string_view message) {
                                       const std::lock_guard lock(mutex);
                                       warnings.emplace_back(message);
                                     })});
  EXPECT_FALSE(locks.admin().break_lock("key", Fence(1))) << "the key is free";
  auto lease = locks.acquire("key", {.ttl = 10min});
  EXPECT_FALSE(locks.admin().break_lock("key", Fence(lease.fence().value() - 1)));
  EXPECT_FALSE(locks.admin().break_lock("key", Fence(lease.fence().value() + 1)));
  EXPECT_TRUE(locks.admin().owns(lease.id()));
  EXPECT_TRUE(locks.admin().break_lock("key", lease.fence()));
  EXPECT_FALSE(locks.is_locked("key"));
  EXPECT_FALSE(locks.admin().break_lock("key", lease.fence()));
  EXPECT_FALSE(locks.release(lease.id()));
  const auto next = locks.acquire("key");
  EXPECT_GT(next.fence(), lease.fence());
  EXPECT_FALSE(locks.admin().break_lock("key", lease.fence())) << "the lock of the next holder stays";
  lease.detach();
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return std::ranges::any_of(warnings, [](const auto& text) { return text.find("broken") != std::string::npos; });
  }));
}

TEST_P(Contract, BreakWakesWaiter) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store());
  auto other = open_client(store());
  auto lease = locks.acquire("key", {.ttl = 10min});
  auto next =
      std::async(std::launch::async, [&] { return other.acquire("key", {.wait = {.timeout = 10min}}).fence(); });
  if (store().keeps_order()) {
    EXPECT_TRUE(eventually([&] { return locks.admin().inspect("key").waiters == 1U; }));
  }
  EXPECT_TRUE(locks.admin().break_lock("key", lease.fence()));
  EXPECT_GT(next.get(), lease.fence());
  lease.detach();
}

TEST_P(Contract, FenceCounterCanBeRaisedAndNeverLowered) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store());
  EXPECT_EQ(locks.admin().inspect("key").fence, Fence());
  EXPECT_EQ(locks.admin().raise_fence("key", Fence(ahead_of_clock)), Fence(ahead_of_clock));
  EXPECT_EQ(store().fence_counter("key"), ahead_of_clock);
  EXPECT_EQ(locks.admin().raise_fence("key", Fence(5)), Fence(ahead_of_clock));
  EXPECT_EQ(locks.admin().inspect("key").fence, Fence(ahead_of_clock));
  auto lease = locks.acquire("key");
  EXPECT_EQ(lease.fence(), Fence(ahead_of_clock + 1));
  EXPECT_EQ(locks.admin().raise_fence("key", Fence(ahead_of_clock + 100)), Fence(ahead_of_clock + 100))
      << "also while locked";
  EXPECT_TRUE(lease.release());
  EXPECT_EQ(locks.acquire("key").fence(), Fence(ahead_of_clock + 101));
}

TEST_P(Contract, FenceCounterCannotBeRaisedToItsEnd) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store(), {.log = Log([](LogLevel, std::string_view) {})});
  expect_error(ErrorCode::invalid_argument,
               [&] { (void)locks.admin().raise_fence("key", Fence(Fence::refuse_above)); });
  EXPECT_EQ(locks.admin().inspect("key").fence, Fence());
  EXPECT_EQ(locks.admin().raise_fence("key", Fence(Fence::refuse_above - 1)).value(), Fence::refuse_above - 1);
  EXPECT_EQ(locks.acquire("key").fence().value(), Fence::refuse_above);
}

TEST_P(Contract, AdministrationHasAsynchronousCounterparts) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store());
  auto lease = locks.acquire("key");
  EXPECT_EQ(locks.admin().async_list({.prefix = "k"}, asio::use_future).get().locks.size(), 1U);
  EXPECT_EQ(locks.admin().async_inspect("key", asio::use_future).get().fence, lease.fence());
  EXPECT_EQ(locks.admin().async_inspect("key", asio::use_future).get().fence, lease.fence());
  EXPECT_TRUE(locks.admin().async_break_lock("key", lease.fence(), asio::use_future).get());
  EXPECT_EQ(locks.admin().async_raise_fence("key", Fence(1), asio::use_future).get(), lease.fence());
  EXPECT_EQ(locks.admin().async_clean_up({}, asio::use_future).get().count, 0U);
  lease.detach();
}

TEST_P(Contract, AdministrationCanBeStopped) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store());
  std::stop_source source;
  source.request_stop();
  const auto stop = source.get_token();
  expect_error(ErrorCode::aborted, [&] { (void)locks.admin().list({}, stop); });
  expect_error(ErrorCode::aborted, [&] { (void)locks.admin().inspect("key", stop); });
  expect_error(ErrorCode::aborted, [&] { (void)locks.admin().break_lock("key", Fence(1), stop); });
  expect_error(ErrorCode::aborted, [&] { (void)locks.admin().raise_fence("key", Fence(1), stop); });
  expect_error(ErrorCode::aborted, [&] { (void)locks.admin().clean_up({}, stop); });
}

// ---------------------------------------------------------------------------------------------------------------------
// Watching

// Collects the states that a watch reports, as "free" or the holder.
class Watched {
 public:
  void add(const KeyState& state) {
    const std::lock_guard lock(mutex_);
    states_.push_back(state.holders.empty() ? "free" : state.holders.at(0).label);
  }
  std::vector<std::string> states() const {
    const std::lock_guard lock(mutex_);
    return states_;
  }
  [[nodiscard]] bool ends_with(const std::string& state) const {
    const auto all = states();
    return !all.empty() && all.back() == state;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> states_;
};

TEST_P(Contract, WatchReportsStateAndChanges) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store());
  auto one = open_client(store(), {.holder = "one"});
  auto two = open_client(store(), {.holder = "two"});
  Watched watched;
  std::stop_source stop;
  auto watching = std::async(std::launch::async, [&] {
    locks.admin().watch(
        "key", {.interval = 10ms}, [&](const KeyState& state) { watched.add(state); }, stop.get_token());
  });
  EXPECT_TRUE(eventually([&] { return watched.ends_with("free"); }));
  auto lease = one.acquire("key", {.ttl = 10min});
  EXPECT_TRUE(eventually([&] { return watched.ends_with("one"); }));
  EXPECT_TRUE(lease.extend(20min)) << "which is no change";
  EXPECT_TRUE(lease.release());
  EXPECT_TRUE(eventually([&] { return watched.ends_with("free"); }));
  auto next = two.acquire("key", {.ttl = 10min});
  EXPECT_TRUE(eventually([&] { return watched.ends_with("two"); }));
  EXPECT_TRUE(next.release());
  EXPECT_TRUE(eventually([&] { return watched.ends_with("free"); }));
  stop.request_stop();
  watching.get();
  EXPECT_EQ(watched.states(), (std::vector<std::string>{"free", "one", "free", "two", "free"}));
}

TEST_P(Contract, WatchReportsOnlyLatestState) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store());
  Watched watched;
  Signal called;
  Signal may_continue;
  std::stop_source stop;
  auto watching = std::async(std::launch::async, [&] {
    locks.admin().watch(
        "key", {.interval = 1ms},
        [&](const KeyState& state) {
          watched.add(state);
          called.set();
          may_continue.wait_for(10min);
        },
        stop.get_token());
  });
  ASSERT_TRUE(called.wait_for(10min));
  for (const char* holder : {"one", "two", "three"}) {
    EXPECT_TRUE(open_client(store(), {.holder = holder}).acquire("key").release());
  }
  const auto last = open_client(store(), {.holder = "last"});
  const auto lease = last.acquire("key", {.ttl = 10min});
  may_continue.set();
  EXPECT_TRUE(eventually([&] { return watched.ends_with("last"); }));
  stop.request_stop();
  watching.get();
  EXPECT_EQ(watched.states(), (std::vector<std::string>{"free", "last"}));
}

TEST_P(Contract, WatchRejectsInvalidOptions) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store());
  expect_error(ErrorCode::invalid_argument,
               [&] { locks.admin().watch("key", {.interval = 0ms}, [](const KeyState&) {}); });
}

TEST_P(Contract, WatchHasAsynchronousCounterpart) {
  if (!store().supports_administration()) return;
  auto locks = open_client(store());
  Watched watched;
  auto watching = locks.admin().async_watch(
      "key", {.interval = 1ms}, [&](const KeyState& state) { watched.add(state); }, asio::use_future);
  EXPECT_TRUE(eventually([&] { return watched.ends_with("free"); }));
  locks.close();
  expect_error(ErrorCode::aborted, [&] { watching.get(); });
}

}  // namespace
}  // namespace syncguard::testing
