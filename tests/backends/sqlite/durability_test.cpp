// What survives a power failure, and which operations wait for the disk.

#include "backends/sqlite/store.hpp"
#include "simulated_disk.hpp"
#include "support/expect_error.hpp"
#include "support/sqlite_client.hpp"
#include "support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::IsEmpty;
using ::testing::Not;

sqlite::Connection::Hooks hooks() {
  const auto yes = [] { return true; };
  return {.keep_waiting = [] { return false; }, .keep_running = yes, .may_write = yes};
}

struct SqliteDurability : ::testing::Test {
  SqliteDurability() {
    std::filesystem::create_directory(database.parent_path());
    // Without the log, which is removed with the last connection.
    { const sqlite::Store store(database, hooks()); }
    disk.emplace(database.parent_path());
  }

  sqlite::Store open(const std::filesystem::path& path) {
    return {path, hooks(), [this] { return now; }};
  }

  TemporaryFolder folder;
  const std::filesystem::path database = std::filesystem::canonical(folder.path()) / "disk" / "locks.db";
  std::optional<SimulatedDisk> disk;
  Timestamp now{1'794'777'078'522ms};
};

TEST_F(SqliteDurability, OnlyGrantsExtensionsAndReleasesOfLongLocksWaitForTheDisk) {
  auto store = open(database);
  const auto syncs = [&](auto operation) {
    const auto before = disk->sync_count();
    operation();
    return disk->sync_count() - before;
  };
  const auto release = [&](const LockId& id) { EXPECT_TRUE(std::holds_alternative<Released>(store.release(id))); };
  const auto id = LockId::generate();
  const auto waiter = LockId::generate();
  EXPECT_GE(syncs([&] { (void)store.acquire({"key", id, 30s}); }), 1U);
  EXPECT_EQ(syncs([&] { (void)store.join("key", {waiter}); }), 0U);
  EXPECT_EQ(syncs([&] { (void)store.acquire({"key", LockId::generate(), 30s}); }), 0U) << "contended";
  EXPECT_EQ(syncs([&] { (void)store.extend(id, 60s); }), 1U);
  EXPECT_EQ(syncs([&] { release(id); }), 0U);
  EXPECT_EQ(syncs([&] { store.leave("key", waiter); }), 0U);

  const auto long_id = LockId::generate();
  EXPECT_EQ(syncs([&] { (void)store.acquire({"long", long_id, 60s + 1ms}); }), 1U);
  EXPECT_EQ(syncs([&] { release(long_id); }), 1U);
  const auto short_id = LockId::generate();
  EXPECT_EQ(syncs([&] { (void)store.acquire({"long", short_id, 2min}); }), 1U);
  now += 1min;
  EXPECT_EQ(syncs([&] { release(short_id); }), 0U) << "it has a minute left";
}

TEST_F(SqliteDurability, FailedSyncIsInDoubt) {
  auto store = open(database);
  (void)store.acquire({"other", LockId::generate(), 30s});
  const auto id = LockId::generate();
  disk->fail_next_sync(SQLITE_IOERR_FSYNC);
  const auto error = error_of([&] { (void)store.acquire({"key", id, 30s}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::service_unavailable);
  EXPECT_TRUE(error->in_doubt());
  EXPECT_TRUE(std::holds_alternative<Released>(store.release(id))) << "the lock was stored";
  EXPECT_TRUE(std::holds_alternative<Granted>(store.acquire({"key", LockId::generate(), 30s})));
}

// The states of a key that are allowed after a power failure, given the replies that callers got before it.
struct Expected {
  struct Lock {
    LockId id;
    Timestamp expires_at;
    friend bool operator==(const Lock&, const Lock&) = default;
  };
  std::vector<std::optional<Lock>> locks{std::nullopt};
  std::uint64_t fence = 0;
};
using ExpectedKeys = std::map<std::string, Expected>;

// A sequence of operations of two connections, with the allowed states at each point.
class History {
 public:
  History(SqliteDurability& test, unsigned seed) : test_(test), random_(seed) {}

  // Every few operations, another program copies the log into the database, or it grows until SQLite does that.
  enum class Checkpoints { frequent, automatic };
  void run(int operations, Checkpoints checkpoints) {
    expect();
    auto first = test_.open(test_.database);
    auto second = test_.open(test_.database);
    SqliteClient other(test_.database);
    for (int i = 0; i < operations; ++i) {
      run_one(random_() % 2 == 0 ? first : second);
      if (checkpoints == Checkpoints::automatic || i % 25 != 24) continue;
      test_.disk->set_operation("checkpoint");
      other("PRAGMA wal_checkpoint(PASSIVE)");
    }
    test_.disk->set_operation("close");
    end_ = test_.disk->event_count();
  }

  // Cuts the power after each of these numbers of events, until something is lost. Returns that, as sentences.
  std::set<std::string> cut_power(const std::vector<std::size_t>& points, const std::string& operation_without_syncs) {
    std::set<std::string> lost;
    PowerCut cut(*test_.disk, operation_without_syncs);
    for (const auto point : points) {
      cut.advance_to(point);
      const auto& [keys, time] = std::prev(expected_.upper_bound(point))->second;
      test_.now = time;
      check(cut.files(random_), keys, lost);
      if (!lost.empty()) break;
    }
    return lost;
  }

  [[nodiscard]] std::size_t end() const { return end_; }

 private:
  void run_one(sqlite::Store& store) {
    static const std::array<std::string, 3> keys{"a", "b", "c"};
    static const std::array<std::chrono::milliseconds, 5> ttls{20s, 59s, 60s, 61s, 10min};
    const auto& key = keys[random_() % keys.size()];
    const auto ttl = ttls[random_() % ttls.size()];
    auto& [locks, fence] = keys_[key];
    test_.now += std::chrono::milliseconds(random_() % 50);
    if (!held_.contains(key)) {
      const auto id = LockId::generate();
      begin("acquire");
      locks.emplace_back(Expected::Lock{id, test_.now + ttl});
      expect();
      const auto granted = std::get<Granted>(store.acquire({key, id, ttl}, FenceSource::counter));
      held_.emplace(key, id);
      locks = {Expected::Lock{id, granted.expires_at}};
      fence = granted.fence.value();
    } else if (random_() % 3 == 0) {
      begin("extend");
      const auto& id = held_.at(key);
      locks.emplace_back(Expected::Lock{id, test_.now + ttl});
      expect();
      locks = {Expected::Lock{id, std::get<Extended>(store.extend(id, ttl)).expires_at}};
    } else if (random_() % 3 == 0) {
      begin("wait");
      const auto waiter = LockId::generate();
      (void)store.join(key, {waiter});
      store.leave(key, waiter);
    } else {
      begin("release");
      const auto lock = *locks.back();
      locks.emplace_back();
      expect();
      EXPECT_TRUE(std::holds_alternative<Released>(store.release(lock.id)));
      held_.erase(key);
      // It may be back, but not for more than a minute.
      if (lock.expires_at - test_.now > 60s) locks = {std::nullopt};
    }
    expect();
  }

  void begin(const std::string& operation) { test_.disk->set_operation(operation); }
  void expect() { expected_[test_.disk->event_count()] = {keys_, test_.now}; }

  void check(const SimulatedDisk::Files& files, const ExpectedKeys& keys, std::set<std::string>& lost) {
    const TemporaryFolder after;
    for (const auto& [name, content] : files) {
      std::ofstream(after.path() / name, std::ios::binary) << content;
    }
    auto store = test_.open(after.path() / test_.database.filename());
    SqliteClient client(after.path() / test_.database.filename());
    if (client("PRAGMA integrity_check") != "ok") lost.insert("the database is damaged");
    for (const auto& [key, expected] : keys) {
      const auto counter = client("SELECT fence FROM syncguard_fence_counters WHERE fence_key = ?1", {"fence:" + key});
      if (expected.fence > (counter.empty() ? 0 : std::stoull(counter))) lost.insert("a fence is lost");
      const auto found = store.find_live(Key(key));
      const auto lock = found ? std::optional(Expected::Lock{found->lock_id, found->expires_at}) : std::nullopt;
      if (std::ranges::find(expected.locks, lock) == expected.locks.end()) {
        lost.insert(lock ? "an extension or a release is lost" : "a grant is lost");
      }
    }
  }

  struct At {
    ExpectedKeys keys;
    Timestamp time;
  };

  SqliteDurability& test_;
  std::mt19937 random_;
  ExpectedKeys keys_;
  std::map<std::string, LockId> held_;
  std::map<std::size_t, At> expected_;  // by the number of events from which on it is true
  std::size_t end_ = 0;
};

// So many numbers up to the given one, at equal distances.
std::vector<std::size_t> spread(std::size_t count, std::size_t last) {
  std::vector<std::size_t> points;
  for (std::size_t i = 1; i <= count; ++i) points.push_back(last * i / count);
  return points;
}

TEST_F(SqliteDurability, PowerFailureLosesNoGrantNoFenceNoExtensionAndNoReleaseOfALongLock) {
  History history(*this, 1);
  history.run(200, History::Checkpoints::frequent);
  EXPECT_THAT(history.cut_power(spread(150, history.end()), ""), IsEmpty());
}

TEST_F(SqliteDurability, PowerFailureDuringAutomaticCheckpointLosesNothing) {
  History history(*this, 2);
  history.run(450, History::Checkpoints::automatic);
  const auto events = disk->events();
  std::vector<std::size_t> points;
  for (std::size_t i = 0; i < history.end(); ++i) {
    if (events[i].file != "locks.db") continue;
    for (const std::size_t point : {i, i + 1, i + 3, i + 10}) points.push_back(std::min(point, history.end()));
  }
  ASSERT_THAT(points, Not(IsEmpty())) << "there was no checkpoint";
  std::ranges::sort(points);
  points.erase(std::unique(points.begin(), points.end()), points.end());
  EXPECT_THAT(history.cut_power(points, ""), IsEmpty());
}

// The test above can fail: it detects the loss if one of the operations does not wait for the disk.
TEST_F(SqliteDurability, PowerFailureIsNoticedWithoutSyncs) {
  History history(*this, 3);
  history.run(200, History::Checkpoints::frequent);
  for (const char* operation : {"acquire", "extend", "release"}) {
    EXPECT_THAT(history.cut_power(spread(150, history.end()), operation), Not(IsEmpty())) << operation;
  }
}

}  // namespace
}  // namespace syncguard::testing
