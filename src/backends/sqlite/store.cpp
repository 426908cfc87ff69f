#include "backends/sqlite/store.hpp"

#include "async/system_now.hpp"
#include "core/fence_limit.hpp"
#include "core/liveness.hpp"
#include "core/reservation.hpp"
#include "core/storage_key.hpp"
#include "sqlite_sql.hpp"

namespace syncguard::sqlite {
namespace {

constexpr core::StorageLimit storage_limit{.limit = 1700, .reserve = 0};

std::int64_t millis(Timestamp time) { return time.time_since_epoch().count(); }
Timestamp timestamp(std::int64_t millis) { return Timestamp(std::chrono::milliseconds(millis)); }

std::string lock_key_of(const Key& key) { return core::lock_storage_key("", key, storage_limit); }

// A row of find_by_key or find_by_id. What cannot be a lock of anybody's is an error, and stays as it is.
std::optional<LockRecord> record_of(Query& query) {
  if (!query.next()) return std::nullopt;
  try {
    return LockRecord{.key = query.text(0),
                      .lock_id = LockId(query.text(1)),
                      .expires_at = timestamp(query.number(2)),
                      .acquired_at = timestamp(query.number(3)),
                      .fence = Fence::parse(query.text(4))};
  } catch (const LockError&) {
    throw LockError(ErrorCode::internal, "the database holds something at this key that is no lock");
  }
}

}  // namespace

std::optional<LockRecord> Store::find(const std::string& lock_key) {
  auto query = database_.query(sql::find_by_key);
  query.bind(1, lock_key);
  return record_of(query);
}

std::optional<LockRecord> Store::find(const LockId& id) {
  auto query = database_.query(sql::find_by_id);
  query.bind(1, id.view());
  return record_of(query);
}

AcquireReply Store::acquire(const AcquireRequest& request) {
  const std::string lock_key = lock_key_of(request.key);
  // A look before the write lock is asked for: to be refused costs no writing.
  const auto held_by_another = [&](const std::optional<LockRecord>& record, Timestamp now) {
    return record && record->lock_id != request.lock_id && core::is_live(record->expires_at, now);
  };
  if (const auto record = find(lock_key); held_by_another(record, async::system_now())) {
    return Contended{core::free_in(record->expires_at, async::system_now())};
  }

  return database_.transaction([&]() -> AcquireReply {
    const Timestamp now = async::system_now();
    if (const auto record = find(lock_key); record && core::is_live(record->expires_at, now)) {
      if (record->lock_id != request.lock_id) return Contended{core::free_in(record->expires_at, now)};
      remove_waiters(lock_key, request.lock_id.view(), now);
      return Granted{record->fence, record->expires_at, record->expires_at - now};
    }
    if (const auto turn = find_turn(lock_key, now); turn && turn->waiter != request.lock_id.view()) {
      return Contended{turn->until - now};
    }

    const std::string fence_key = core::fence_storage_key("", lock_key, storage_limit);
    std::uint64_t counter = 0;
    {
      auto query = database_.query(sql::find_counter);
      if (query.bind(1, fence_key).next()) counter = static_cast<std::uint64_t>(query.number(0));
    }
    const Fence fence = core::next_fence(counter);
    const std::string fence_text = fence.str();
    const Timestamp expires_at = now + request.ttl;
    database_.query(sql::put_counter)
        .bind(1, fence_key)
        .bind(2, static_cast<std::int64_t>(fence.value()))
        .bind(3, request.key.str())
        .run();
    database_.query(sql::put_lock)
        .bind(1, lock_key)
        .bind(2, request.lock_id.view())
        .bind(3, millis(expires_at))
        .bind(4, millis(now))
        .bind(5, fence_text)
        .bind(6, request.key.str())
        .run();
    remove_waiters(lock_key, request.lock_id.view(), now);
    return Granted{fence, expires_at, request.ttl};
  });
}

std::variant<LockRecord, Missing> Store::find_owned(const LockId& id, Timestamp now) {
  const auto record = find(id);
  if (!record || record->lock_id != id) return Missing::not_found;
  if (!core::is_live(record->expires_at, now)) return Missing::expired;
  return *record;
}

ReleaseReply Store::release(const LockId& id) {
  bool turn_given = false;
  const auto reply = database_.transaction([&]() -> ReleaseReply {
    const Timestamp now = async::system_now();
    const auto owned = find_owned(id, now);
    if (const auto* missing = std::get_if<Missing>(&owned)) return *missing;
    database_.query(sql::remove_lock).bind(1, id.view()).run();
    turn_given = pass_turn(lock_key_of(std::get<LockRecord>(owned).key), now);
    return Released{};
  });
  if (turn_given) bell_.ring();
  return reply;
}

ExtendReply Store::extend(const LockId& id, std::chrono::milliseconds ttl) {
  return database_.transaction([&]() -> ExtendReply {
    const Timestamp now = async::system_now();
    const auto owned = find_owned(id, now);
    if (const auto* missing = std::get_if<Missing>(&owned)) return *missing;
    database_.query(sql::set_expiry).bind(1, id.view()).bind(2, millis(now + ttl)).run();
    return Extended{now + ttl, ttl};
  });
}

std::optional<LockRecord> Store::find_live(const Key& key) {
  auto record = find(lock_key_of(key));
  return record && core::is_live(record->expires_at, async::system_now()) ? record : std::nullopt;
}

std::optional<LockRecord> Store::find_live(const LockId& id) {
  auto record = find(id);
  return record && core::is_live(record->expires_at, async::system_now()) ? record : std::nullopt;
}

void Store::remove_if_long_dead(const Key& key) {
  database_.transaction([&] {
    const auto record = find(lock_key_of(key));
    if (record && core::is_removable(record->expires_at, async::system_now())) {
      database_.query(sql::remove_lock).bind(1, record->lock_id.view()).run();
    }
    return true;
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// The queue

std::optional<Store::Turn> Store::find_turn(const std::string& lock_key, Timestamp now) {
  auto query = database_.query(sql::find_turn);
  query.bind(1, lock_key).bind(2, millis(now)).bind(3, millis(now + core::reservation_time));
  if (!query.next()) return std::nullopt;
  return Turn{.waiter = query.text(0), .until = timestamp(query.number(1))};
}

void Store::remove_waiters(const std::string& lock_key, std::string_view waiter, Timestamp now) {
  database_.query(sql::remove_waiters)
      .bind(1, lock_key)
      .bind(2, waiter)
      .bind(3, millis(now))
      .bind(4, millis(now + core::reservation_time))
      .run();
}

bool Store::pass_turn(const std::string& lock_key, Timestamp now) {
  auto query = database_.query(sql::give_turn);
  return query.bind(1, lock_key).bind(2, millis(now + core::reservation_time)).next();
}

void Store::join(const Key& key, const LockId& waiter) {
  database_.transaction([&] {
    const std::string lock_key = lock_key_of(key);
    // One whose turn is over begins anew at the end.
    remove_waiters(lock_key, "", async::system_now());
    database_.query(sql::join).bind(1, lock_key).bind(2, waiter.view()).run();
    return true;
  });
}

void Store::leave(const Key& key, const LockId& waiter) {
  const bool turn_given = database_.transaction([&] {
    const Timestamp now = async::system_now();
    const std::string lock_key = lock_key_of(key);
    const auto turn = find_turn(lock_key, now);
    const bool had_turn = turn && turn->waiter == waiter.view();
    remove_waiters(lock_key, waiter.view(), now);
    return had_turn && !find_live(key) && pass_turn(lock_key, now);
  });
  if (turn_given) bell_.ring();
}

std::string Store::stored_key(const Key& key) { return lock_key_of(key); }

std::map<std::string, Store::Queue, std::less<>> Store::free_queues() {
  std::map<std::string, Queue, std::less<>> queues;
  auto query = database_.query(sql::find_free_queues);
  query.bind(1, millis(async::system_now() - core::tolerance));
  while (query.next()) {
    const auto turn_until = query.number(2);  // zero where it is null
    queues[query.text(0)].push_back(
        {.waiter = query.text(1), .turn_until = turn_until != 0 ? std::optional(timestamp(turn_until)) : std::nullopt});
  }
  return queues;
}

Store::Prospect Store::prospect(const Queue& queue, const LockId& waiter, Timestamp now) {
  // A turn that is further away than it can have been given is one from before the clock was set back.
  for (const auto& [name, turn_until] : queue) {
    if (!turn_until || *turn_until <= now || *turn_until > now + core::reservation_time) continue;
    if (name == waiter.view()) return {.try_now = true};
    return {.look_again_at = turn_until};
  }
  for (const auto& [name, turn_until] : queue) {
    // The one who asks counts also if its turn came and went before it was told.
    if (name == waiter.view()) return {.try_now = true};
    if (!turn_until) break;
  }
  return {.look_again_at = now + core::reservation_time, .stalled = true};
}

void Store::move_on(const Key& key) {
  const bool turn_given = database_.transaction([&] {
    const Timestamp now = async::system_now();
    const std::string lock_key = lock_key_of(key);
    if (find_live(key) || find_turn(lock_key, now)) return false;
    remove_waiters(lock_key, "", now);
    return pass_turn(lock_key, now);
  });
  if (turn_given) bell_.ring();
}

Store::Health Store::health() {
  const auto answer = [this](std::string_view sql) {
    auto query = database_.query(sql);
    return query.next() ? query.text(0) : "";
  };
  database_.transaction([] { return true; });
  std::set<std::string> schema;
  auto names = database_.query("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite@_%' ESCAPE '@'");
  while (names.next()) schema.insert(names.text(0));
  return {.journal_mode = answer("PRAGMA journal_mode"),
          .schema = std::move(schema),
          .integrity = answer("PRAGMA quick_check(1)")};
}

std::set<std::string> Store::expected_schema() {
  return {"idx_syncguard_locks_expires",     "idx_syncguard_locks_lock_id",
          "idx_syncguard_locks_waiters_key", "idx_syncguard_locks_waiters_waiter",
          "syncguard_fence_counters",        "syncguard_locks",
          "syncguard_locks_waiters"};
}

}  // namespace syncguard::sqlite
