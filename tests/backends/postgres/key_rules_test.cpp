// The rules of a key, in the functions and in the plain statements, at a time that the test chooses instead of the
// server's.

#include "support/key_rules.hpp"

#include "backends/postgres/statements.hpp"
#include "backends/verdict.hpp"
#include "fixture.hpp"
#include "postgres_sql.hpp"
#include "support/liveness_cases.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace syncguard::testing {
namespace {

using backends::Verdict;
using key_rules::Json;
using Columns = std::vector<std::string>;

std::string at_time(std::int64_t time, const std::string& sql) {
  return postgres::replaced(sql, postgres::sql::now, std::to_string(time) + "::bigint");
}
std::string at_time(Timestamp time, const std::string& sql) { return at_time(time.time_since_epoch().count(), sql); }

std::string time_text(std::int64_t relative) {
  return std::to_string(key_rules::time_at(relative).time_since_epoch().count());
}
std::string place_text(std::int64_t relative) { return std::to_string(key_rules::place_at(relative)); }

Verdict verdict_of(const Columns& columns) { return static_cast<Verdict>(std::stoi(columns.at(0))); }
Missing missing(Verdict verdict) {
  EXPECT_TRUE(verdict == Verdict::expired || verdict == Verdict::not_found);
  return verdict == Verdict::expired ? Missing::expired : Missing::not_found;
}

const postgres::Tables tables =
    postgres::Tables("syncguard_locks", "syncguard_fence_counters").in_schemas("public", "public");

// Reads and writes the tables. Subclasses make the steps.
class PostgresKeyRules : public key_rules::Store {
 public:
  explicit PostgresKeyRules(const PostgresServer& server) : client_(server) { client_("LISTEN syncguard_wake"); }

  void write(const key_rules::View& view) override {
    client_("BEGIN");
    client_("DELETE FROM syncguard_locks; DELETE FROM syncguard_fence_counters; DELETE FROM syncguard_locks_waiters");
    if (view.holder) {
      client_.row(
          "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) "
          "VALUES ($1, $2, $3, 0, $4, $1)",
          {key_rules::key.str(), key_rules::id_of(view.holder->id).str(), time_text(view.holder->until),
           Fence(view.holder->fence).str()});
    }
    if (view.counter != 0) {
      client_.row("INSERT INTO syncguard_fence_counters (fence_key, fence) VALUES ('fence:' || $1, $2)",
                  {key_rules::key.str(), std::to_string(view.counter)});
    }
    const auto add = [&](const std::string& id, std::int64_t place, std::int64_t reservation, std::int64_t seen,
                         const std::string& until) {
      client_.row(
          "INSERT INTO syncguard_locks_waiters (key, waiter, place, reservation_ms, seen_at_ms, turn_until_ms) "
          "VALUES ($1, $2, $3, $4, $5, $6)",
          {key_rules::key.str(), key_rules::id_of(id).str(), place_text(place), std::to_string(reservation),
           time_text(seen), until});
    };
    for (const auto& [id, place, until] : view.turns) add(id, place, 50, -5000, time_text(until));
    for (const auto& [id, place, reservation, seen] : view.queue) add(id, place, reservation, seen, "0");
    client_("COMMIT");
  }

  key_rules::View read() override {
    key_rules::View view;
    const auto relative = [](const std::string& text) {
      return key_rules::relative(Timestamp(std::chrono::milliseconds(std::stoll(text))));
    };
    const auto holder = client_.row("SELECT lock_id, expires_at_ms, fence FROM syncguard_locks");
    if (!holder.empty()) {
      view.holder = key_rules::Holder{key_rules::name_of(holder[0]), relative(holder[1]), std::stoull(holder[2])};
    }
    const auto counter = client_("SELECT fence FROM syncguard_fence_counters");
    view.counter = counter.empty() ? 0 : std::stoull(counter);
    const auto rows =
        Json::parse(client_("SELECT coalesce(json_agg(w ORDER BY place), '[]') FROM syncguard_locks_waiters AS w"));
    for (const auto& row : rows) {
      const auto id = key_rules::name_of(row.at("waiter").get<std::string>());
      const auto place = key_rules::relative_place(row.at("place"));
      const auto milliseconds = [&](const char* name) { return relative(row.at(name).dump()); };
      if (row.at("turn_until_ms") != 0) {
        view.turns.push_back({id, place, milliseconds("turn_until_ms")});
      } else {
        view.queue.push_back({id, place, row.at("reservation_ms"), milliseconds("seen_at_ms")});
      }
    }
    return view;
  }

  key_rules::Outcome step(const std::string& name, const Json& arguments) override {
    const auto reply = reply_of(name, arguments);
    // Delivered with the reply, because the same connection notifies and listens.
    const auto heard = client_.notifications();
    EXPECT_LE(heard.size(), 1U);
    if (heard.empty()) return {reply};
    // The waiter, the hash of the key, and how long its turn lasts.
    const auto& payload = heard.front();
    const auto turn =
        client_("SELECT turn_until_ms - " + time_text(0) + " FROM syncguard_locks_waiters WHERE turn_until_ms > 0");
    EXPECT_TRUE(payload.ends_with(" " + turn)) << payload;
    return {reply, key_rules::name_of(payload)};
  }

 protected:
  // The first row of what an operation returns.
  virtual Columns run(const postgres::Operation& operation, const postgres::Values& values) = 0;

  Json reply_of(const std::string& name, const Json& arguments) {
    namespace operations = postgres::operations;
    const auto& key = key_rules::key.str();
    const auto milliseconds = [](const std::string& text) { return std::chrono::milliseconds(std::stoll(text)); };
    const auto time = [&](const std::string& text) { return Timestamp(milliseconds(text)); };
    if (name == "break") {
      const Fence fence(arguments.at("fence").get<std::uint64_t>());
      return key_rules::broken_reply(verdict_of(run(operations::break_lock, {key, fence.str()})) == Verdict::yes);
    }
    const auto id = key_rules::id_in(arguments).str();
    if (name == "acquire") {
      const auto row = run(operations::acquire, {key, id, std::to_string(arguments.at("ttl").get<int>()),
                                                 "fence:" + key, key, "false", "", id});
      switch (verdict_of(row)) {
        case Verdict::yes:
          return key_rules::reply_of(Granted{Fence(std::stoull(row.at(1))), time(row.at(2)), milliseconds(row.at(3))});
        case Verdict::no:
          return key_rules::reply_of(Contended{milliseconds(row.at(3))});
        default:
          EXPECT_EQ(verdict_of(row), Verdict::counter_at_end);
          return key_rules::counter_at_end_reply;
      }
    }
    if (name == "release") {
      const auto verdict = verdict_of(run(operations::release, {id}));
      if (verdict == Verdict::yes) return key_rules::reply_of(ReleaseReply(Released{}));
      return key_rules::reply_of(missing(verdict));
    }
    if (name == "extend") {
      const auto row = run(operations::extend, {id, std::to_string(arguments.at("ttl").get<int>())});
      if (verdict_of(row) != Verdict::yes) return key_rules::reply_of(missing(verdict_of(row)));
      return key_rules::reply_of(ExtendReply(Extended{time(row.at(1)), milliseconds(row.at(2))}));
    }
    if (name == "leave") {
      EXPECT_EQ(verdict_of(run(operations::leave, {key, id})), Verdict::yes);
      return key_rules::left_reply;
    }
    Columns row;
    if (name == "look") {
      row = run(operations::look, {postgres::array_of({key}), postgres::array_of({id}), postgres::array_of({id})});
    }
    if (name == "join" || verdict_of(row) == Verdict::no) {
      const auto place = arguments.contains("place") ? place_text(arguments.at("place")) : "0";
      row = run(operations::join, {key, id, id, std::to_string(arguments.at("reservation").get<int>()), place,
                                   name == "look" ? "true" : "false"});
    }
    EXPECT_EQ(verdict_of(row), Verdict::yes);
    // A waiter that has the lock may have no place anymore.
    core::WaiterReply reply{.place = key_rules::place_at(arguments.value("place", std::int64_t{0}))};
    if (!row.at(1).empty()) reply.free_in = milliseconds(row.at(1));
    if (!row.at(2).empty()) reply.place = std::stoll(row.at(2));
    reply.is_first = row.at(3) == "t";
    return key_rules::reply_of(reply);
  }

  PostgresClient client_;
};

class Functions : public PostgresKeyRules {
 public:
  explicit Functions(const PostgresServer& server) : PostgresKeyRules(server) {
    for (const auto* function : functions_.all()) {
      client_(at_time(key_rules::now,
                      postgres::replaced(function->create, "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")));
    }
  }

 private:
  Columns run(const postgres::Operation& operation, const postgres::Values& values) override {
    return client_.row((functions_.*operation.function).call, values);
  }

  const postgres::Tables::Functions functions_ = tables.functions();
};

// Used on tables of another library, without a queue.
class PlainStatements : public PostgresKeyRules {
 public:
  using PostgresKeyRules::PostgresKeyRules;

  [[nodiscard]] key_rules::Features features() const override { return {}; }

 private:
  Columns run(const postgres::Operation& operation, const postgres::Values& values) override {
    const auto count = std::min(values.size(), operation.value_count);
    return client_.row(at_time(key_rules::now, statements_.*operation.statement),
                       {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count)});
  }

  const postgres::Statements statements_{tables, {.locks = postgres::FoundTable{}}, postgres::FoundFunctions::missing};
};

struct PostgresKeyRulesTest : Postgres {};

TEST_F(PostgresKeyRulesTest, EveryCaseInFunctions) {
  Functions store(server);
  run_cases(store);
}

TEST_F(PostgresKeyRulesTest, EveryCaseInPlainStatements) {
  PlainStatements store(server);
  run_cases(store);
}

TEST_F(PostgresKeyRulesTest, RandomStepsInFunctions) {
  Functions store(server);
  for (const unsigned seed : {1U, 2U, 3U}) run_random_steps(store, seed, 300);
}

TEST_F(PostgresKeyRulesTest, RandomStepsInPlainStatements) {
  PlainStatements store(server);
  run_random_steps(store, 1, 100);
}

struct PostgresLiveness : Postgres {
  // One lock, and the result of a statement that runs at a time.
  std::string run(const LivenessCase& time, const std::string& statement, const postgres::Values& values) const {
    server.execute("DELETE FROM syncguard_locks");
    server.execute("INSERT INTO syncguard_locks VALUES ('key', $1, $2, 0, '1', 'key')",
                   {id, std::to_string(time.expires_at)});
    return server.execute(at_time(time.now, statement), values);
  }

  static postgres::FoundTables found() {
    postgres::FoundTable table{};
    table.is_table = table.trusted = table.usable = table.has_holder = true;
    return {.locks = table, .counters = table, .waiters = table};
  }
  const postgres::Statements statements{tables, found(), postgres::FoundFunctions::usable};
  const std::string id = std::string(LockId::length, 'A');
};

TEST_F(PostgresLiveness, ReadingStatementsAgree) {
  for (const auto& time : liveness_cases) {
    SCOPED_TRACE(time.now);
    const bool live = time.live;
    EXPECT_EQ(run(time, statements.lookup_key, {"key"}), live ? "key" : "");
    EXPECT_EQ(run(time, statements.lookup_id, {id}), live ? "key" : "");
    EXPECT_EQ(run(time, "SELECT count(user_key) FROM (" + statements.inspect + ") AS state", {"key", "fence:key"}),
              live ? "1" : "0");
    EXPECT_EQ(run(time, "SELECT sum(place) FROM (" + statements.list_locks + ") AS page", {"", "", "10"}),
              live ? "1" : "0");
  }
}

TEST_F(PostgresLiveness, CleanupAgrees) {
  for (const auto& [expires_at, now, removable] : removal_cases) {
    SCOPED_TRACE(now);
    const LivenessCase time{expires_at, now, false};
    EXPECT_EQ(run(time, statements.count_expired, {"2000"}), removable ? "1" : "0");
    EXPECT_EQ(run(time, statements.remove_expired, {"2000", "10"}), removable ? "key" : "");
    run(time, statements.remove_dead, {"key"});
    EXPECT_EQ(server.execute("SELECT count(*) FROM syncguard_locks"), removable ? "0" : "1");
  }
}

}  // namespace
}  // namespace syncguard::testing
