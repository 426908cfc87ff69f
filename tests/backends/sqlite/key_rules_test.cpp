// The rules of a key, on a database file.

#include "support/key_rules.hpp"
#include "backends/sqlite/store.hpp"
#include "support/sqlite_client.hpp"
#include "support/temporary_folder.hpp"

#include <syncguard/lock_id.hpp>

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>

namespace syncguard::testing {
namespace {

// All waiters of a SQLite database ask for the same reservation, so it is not stored.
class SqliteKeyRules : public key_rules::Store {
 public:
  SqliteKeyRules() {
    outsider_("PRAGMA synchronous = OFF");
    for (unsigned number = 0; number < sqlite::WakeFiles::count; ++number) {
      wake_files_.at(number) = sqlite::WakeFiles(sqlite::Folder(path_)).prepare(number).value();
    }
  }

  [[nodiscard]] key_rules::Features features() const override {
    return {"queue", "seen", "rows of turns", "several turns"};
  }

  void write(const key_rules::View& view) override {
    outsider_(
        "BEGIN; DELETE FROM syncguard_locks; DELETE FROM syncguard_fence_counters; DELETE FROM "
        "syncguard_locks_waiters");
    if (view.holder) {
      outsider_(
          "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) "
          "VALUES (?1, ?2, ?3, ?4, ?5, ?1)",
          {key_rules::key.str(), key_rules::id_of(view.holder->id).str(), time(view.holder->until), time(0),
           Fence(view.holder->fence).str()});
    }
    if (view.counter != 0) {
      outsider_("INSERT INTO syncguard_fence_counters (fence_key, fence) VALUES ('fence:' || ?1, ?2)",
                {key_rules::key.str(), std::to_string(view.counter)});
    }
    for (const auto& turn : view.turns) {
      outsider_(
          "INSERT INTO syncguard_locks_waiters (key, waiter, place, seen_at_ms, turn_until_ms) "
          "VALUES (?1, ?2, ?3, ?4, ?5)",
          {key_rules::key.str(), key_rules::id_of(turn.id).str(), place(turn.place), time(-5000), time(turn.until)});
    }
    for (const auto& entry : view.queue) {
      outsider_("INSERT INTO syncguard_locks_waiters (key, waiter, place, seen_at_ms) VALUES (?1, ?2, ?3, ?4)",
                {key_rules::key.str(), key_rules::id_of(entry.id).str(), place(entry.place), time(entry.seen)});
    }
    outsider_("COMMIT");
  }

  key_rules::Outcome step(const std::string& name, const key_rules::Json& arguments) override {
    auto reply = reply_of(name, arguments);
    return {std::move(reply), woken()};
  }

  key_rules::View read() override {
    key_rules::View view;
    std::string id;
    std::int64_t number = 0;
    std::int64_t other_number = 0;
    auto locks = rows("SELECT lock_id, expires_at_ms, CAST(fence AS INTEGER) FROM syncguard_locks");
    if (locks >> id >> number >> other_number) {
      view.holder =
          key_rules::Holder{key_rules::name_of(id), relative_time(number), static_cast<std::uint64_t>(other_number)};
    }
    rows("SELECT fence FROM syncguard_fence_counters") >> view.counter;
    auto turns = rows(
        "SELECT waiter, place, turn_until_ms FROM syncguard_locks_waiters WHERE turn_until_ms IS NOT NULL "
        "ORDER BY place");
    while (turns >> id >> number >> other_number) {
      view.turns.push_back({key_rules::name_of(id), key_rules::relative_place(number), relative_time(other_number)});
    }
    auto queue = rows(
        "SELECT waiter, place, seen_at_ms FROM syncguard_locks_waiters WHERE turn_until_ms IS NULL ORDER BY place");
    while (queue >> id >> number >> other_number) {
      view.queue.push_back({.id = key_rules::name_of(id),
                            .place = key_rules::relative_place(number),
                            .seen = relative_time(other_number)});
    }
    return view;
  }

 private:
  static std::string time(std::int64_t relative) {
    return std::to_string(key_rules::time_at(relative).time_since_epoch().count());
  }
  static std::int64_t relative_time(std::int64_t stored) {
    return key_rules::relative(Timestamp(std::chrono::milliseconds(stored)));
  }
  static std::string place(std::int64_t relative) { return std::to_string(key_rules::place_at(relative)); }

  std::istringstream rows(const std::string& sql) { return std::istringstream(outsider_(sql)); }

  // The waiter whose process was notified: the one that got a turn, if its wake-up file was written.
  std::string woken() {
    std::string name;
    for (unsigned number = 0; number < sqlite::WakeFiles::count; ++number) {
      const auto& file = wake_files_.at(number);
      if (std::filesystem::file_size(file) == 0) continue;
      std::filesystem::resize_file(file, 0);
      const auto turn = outsider_("SELECT waiter FROM syncguard_locks_waiters WHERE turn_until_ms IS NOT NULL");
      name += sqlite::WakeFiles::number_for(turn) == number ? key_rules::name_of(turn) : "a waiter without a turn";
    }
    return name;
  }

  key_rules::Json reply_of(const std::string& name, const key_rules::Json& arguments) {
    if (name == "acquire") {
      try {
        return key_rules::reply_of(store_.acquire(key_rules::acquire_request(arguments), FenceSource::counter));
      } catch (const LockError&) {
        return key_rules::counter_at_end_reply;
      }
    }
    if (name == "break") {
      return key_rules::broken_reply(
          store_.break_lock(key_rules::key, Fence(arguments.at("fence").get<std::uint64_t>())));
    }
    const auto id = key_rules::id_in(arguments);
    if (name == "release") return key_rules::reply_of(store_.release(id));
    if (name == "extend") {
      return key_rules::reply_of(store_.extend(id, std::chrono::milliseconds(arguments.at("ttl"))));
    }
    if (name == "leave") {
      store_.leave(key_rules::key, id);
      return key_rules::left_reply;
    }
    const auto request = key_rules::waiter_request(arguments);
    if (name == "join") return key_rules::reply_of(store_.join(key_rules::key, request));
    const std::array looks{backends::Waiters::Look{id, key_rules::key, request.reservation, request.place.value()}};
    return key_rules::reply_of(store_.look(looks).at(0));
  }

  TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "locks.db";
  sqlite::Store store_{
      path_,
      {.keep_waiting = [] { return false; }, .keep_running = [] { return true; }, .may_write = [] { return true; }},
      [] { return key_rules::now; }};
  SqliteClient outsider_{path_};
  std::array<std::filesystem::path, sqlite::WakeFiles::count> wake_files_;
};

TEST(SqliteStoreRules, FollowsEveryRuleOfAKey) {
  SqliteKeyRules store;
  key_rules::run_cases(store);
}

TEST(SqliteStoreRules, FollowsTheRulesInRandomSteps) {
  SqliteKeyRules store;
  for (const unsigned seed : {1U, 2U, 3U}) {
    SCOPED_TRACE(seed);
    key_rules::run_random_steps(store, seed, 500);
  }
}

}  // namespace
}  // namespace syncguard::testing
