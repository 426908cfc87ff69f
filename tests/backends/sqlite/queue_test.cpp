// The queue in a database file: what the cases of key_rules_test.cpp do not cover.

#include "backends/sqlite/store.hpp"
#include "sqlite_sql.hpp"
#include "support/sqlite_client.hpp"
#include "support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <variant>

namespace syncguard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct SqliteQueue : ::testing::Test {
  sqlite::Connection::Hooks hooks() {
    return {.keep_waiting = [] { return false; },
            .keep_running =
                [this] {
                  ++thousands_of_instructions;
                  return true;
                },
            .may_write = [] { return true; }};
  }
  LockId acquire(std::chrono::milliseconds ttl = 60s) {
    const auto id = LockId::generate();
    EXPECT_TRUE(std::holds_alternative<Granted>(store.acquire({"key", id, ttl}, FenceSource::counter)));
    return id;
  }
  core::WaiterReply look(const LockId& waiter, std::int64_t place) {
    const std::array looks{backends::Waiters::Look{waiter, "key", 50ms, place}};
    return store.look(looks).at(0);
  }
  // Waiters, of which the first has this place.
  void add_waiters(int count, std::int64_t first_place, Timestamp seen) {
    SqliteClient{path}(
        "WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c LIMIT ?1) "
        "INSERT INTO syncguard_locks_waiters (key, waiter, place, seen_at_ms) "
        "SELECT 'key', printf('waiter%016d', ?2 + x), ?2 + x, CAST(?3 AS INTEGER) FROM c",
        {std::to_string(count), std::to_string(first_place), std::to_string(seen.time_since_epoch().count())});
  }
  int count(const std::string& condition = "1") {
    return std::stoi(SqliteClient{path}("SELECT count(*) FROM syncguard_locks_waiters WHERE " + condition));
  }

  TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "locks.db";
  Timestamp now{1'700'000'000'000ms};
  int thousands_of_instructions = 0;
  sqlite::Store store{path, hooks(), [this] { return now; }};
};

TEST_F(SqliteQueue, EveryStatementUsesAnIndex) {
  const std::string by_place = "INDEX idx_syncguard_locks_waiters_place (key=?)";
  const std::string by_turn = "INDEX idx_syncguard_locks_waiters_turn (key=?)";
  const std::string by_waiter = "INDEX sqlite_autoindex_syncguard_locks_waiters_1 (waiter=?)";
  const struct {
    std::string_view statement;
    std::string index;
  } cases[] = {
      {sqlite::sql::has_waiters, by_place},
      {sqlite::sql::count_waiters, by_place},
      {sqlite::sql::find_turns, by_turn},
      {sqlite::sql::find_front, by_place},
      {sqlite::sql::find_entry, by_waiter},
      {sqlite::sql::find_last_place, by_place},
      {sqlite::sql::clear_turns, by_turn},
      {sqlite::sql::remove_waiter, by_waiter},
      {sqlite::sql::doubt, by_waiter},
      {sqlite::sql::doubt, by_place},
      {sqlite::sql::purge_waiters, "INTEGER PRIMARY KEY (rowid=?)"},
  };
  for (const auto& [statement, index] : cases) {
    const auto plan = SqliteClient{path}("EXPLAIN QUERY PLAN " + std::string(statement));
    EXPECT_THAT(plan, AllOf(HasSubstr(index), Not(HasSubstr("TEMP B-TREE")))) << statement;
    EXPECT_EQ(plan.find("SCAN") != plan.npos, statement == sqlite::sql::purge_waiters) << statement;
  }
  EXPECT_THAT(SqliteClient{path}("EXPLAIN QUERY PLAN " + std::string(sqlite::sql::find_waiters_with_turn)),
              HasSubstr("USING INDEX idx_syncguard_locks_waiters_turn"));
}

TEST_F(SqliteQueue, NoStepReadsTheWholeQueue) {
  const auto holder = acquire();
  add_waiters(20'000, 1, now);
  const auto cost_of = [&](auto step) {
    thousands_of_instructions = 0;
    step();
    return thousands_of_instructions;
  };
  const auto waiter = LockId::generate();
  std::int64_t place = 0;
  EXPECT_LT(cost_of([&] { (void)store.acquire({"key", LockId::generate(), 60s}); }), 5);
  EXPECT_LT(cost_of([&] { place = store.join("key", {waiter}).place; }), 10) << "with a purge";
  EXPECT_LT(cost_of([&] { (void)store.join("key", {waiter}); }), 5);
  EXPECT_LT(cost_of([&] { (void)look(waiter, place); }), 5);
  EXPECT_LT(cost_of([&] { (void)store.waiters_with_turn(); }), 5);
  EXPECT_LT(cost_of([&] { (void)store.release(holder); }), 5);
  EXPECT_LT(cost_of([&] { (void)store.acquire({"key", LockId::generate(), 60s}); }), 5);
  now += 60ms;
  EXPECT_LT(cost_of([&] { EXPECT_FALSE(look(waiter, place).free_in); }), 100) << "removes a thousand entries";
  EXPECT_EQ(count("turn_until_ms IS NULL"), 20'000 - 1001);
  EXPECT_LT(cost_of([&] { store.leave("key", waiter); }), 5);
  EXPECT_EQ(count("turn_until_ms IS NULL"), 20'000 - 1002) << "the turn was passed on";
}

TEST_F(SqliteQueue, DeadWaitersOfUnusedKeysArePurged) {
  const auto waiter = LockId::generate();
  (void)store.join("key", {waiter});
  SqliteClient{path}(
      "INSERT INTO syncguard_locks_waiters (key, waiter, place, seen_at_ms) VALUES ('old', 'dead', 1, 1000),"
      " ('old', 'later', 2, 99999999999999)");
  (void)store.join("key", {LockId::generate()});
  EXPECT_EQ(count(), 2);
  now += 60s + 1ms;
  (void)store.join("key", {waiter});
  EXPECT_EQ(count(), 1) << "the waiter that joined again must be kept";
}

// The holder may have died. If only callers that acquire noticed the clock, waiters would wait for the stored time.
TEST_F(SqliteQueue, ClockSetBackKeepsWaitersNoLongerThanTtl) {
  (void)acquire(10min);
  const auto waiter = LockId::generate();
  const auto place = store.join("key", {waiter}).place;
  for (const bool joins : {true, false}) {
    now -= 24h;
    const auto reply = joins ? store.join("key", {waiter}) : look(waiter, place);
    EXPECT_LE(reply.free_in, 10min + 1s);
    EXPECT_EQ(store.find_live("key")->expires_at, now + 10min);
  }
  now += 10min + 1s;
  EXPECT_FALSE(look(waiter, place).free_in);
}

TEST_F(SqliteQueue, EntriesThatAreNoWaitersDelayNoOther) {
  const auto holder = acquire();
  SqliteClient{path}(
      "INSERT INTO syncguard_locks_waiters (key, waiter, place, seen_at_ms) VALUES ('key', 'foreign', 1, ?1)",
      {std::to_string(now.time_since_epoch().count())});
  const auto waiter = LockId::generate();
  const auto place = store.join("key", {waiter}).place;
  (void)store.release(holder);
  EXPECT_FALSE(look(waiter, place).free_in);
}

TEST_F(SqliteQueue, BusyDatabaseOnlyDelaysLooks) {
  const auto waiter = LockId::generate();
  const auto place = store.join("key", {waiter}).place;
  SqliteClient other(path);
  other("BEGIN IMMEDIATE");
  const auto reply = look(waiter, place);
  ASSERT_TRUE(reply.free_in) << "the turn could not be stored";
  EXPECT_LE(*reply.free_in, 50ms);
  other("COMMIT");
  EXPECT_FALSE(look(waiter, place).free_in);
  EXPECT_EQ(store.waiters_with_turn(), std::vector{waiter});
}

}  // namespace
}  // namespace syncguard::testing
