#include "backends/sqlite/store.hpp"

#include "core/expiry.hpp"
#include "core/fence_limit.hpp"
#include "core/listed.hpp"
#include "core/reservation.hpp"
#include "core/validation.hpp"
#include "sqlite_sql.hpp"

#include <syncguard/liveness.hpp>
#include <syncguard/storage_key.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace syncguard::sqlite {
namespace {

std::int64_t millis(Timestamp time) { return time.time_since_epoch().count(); }
Timestamp timestamp(std::int64_t millis) { return Timestamp(std::chrono::milliseconds(millis)); }

std::string lock_key_of(const Key& key) { return lock_storage_key("", key, sqlite_storage_limit); }

// Later than any clock's time, but the sum of two such values does not overflow.
constexpr std::int64_t latest_millis = 9'000'000'000'000'000;

// A waiter updates its last-seen time about every hour. After a day without an update, it is considered dead.
constexpr std::chrono::hours max_seen_age{1};
constexpr std::chrono::hours dead_after{24};

constexpr std::int64_t max_turns_at_once = 64;

// If a crash of the host undoes a release, the lock is held again for the rest of its ttl. If that could be longer than
// this, the release waits for the disk.
constexpr std::chrono::seconds max_cost_of_lost_release{60};

// How many rows a page of a list examines at most, expired ones included.
constexpr std::int64_t max_listed = 2000;

template <typename Lock>
std::optional<LockRecord> live_record(const std::optional<Lock>& lock, Timestamp now) {
  if (!lock || !is_live(lock->record.expires_at, now)) return std::nullopt;
  return lock->record;
}

}  // namespace

std::optional<Store::StoredLock> Store::lock_in(const Query& query) {
  const auto time = [&query](int column) {
    const auto millis = query.number(column);
    if (millis < -latest_millis || millis > latest_millis) {
      throw LockError(ErrorCode::invalid_argument, "not a time");
    }
    return timestamp(millis);
  };
  try {
    return StoredLock{.record = {.key = query.text(0),
                                 .lock_id = LockId(query.text(1)),
                                 .expires_at = time(2),
                                 .acquired_at = time(3),
                                 .fence = Fence::parse(query.text(4)),
                                 .holder = core::stored_holder(query.text(6))},
                      .renewed_at = time(5)};
  } catch (const LockError&) {
    return std::nullopt;
  }
}

// A row that cannot be a lock is an error and stays unchanged.
std::optional<Store::StoredLock> Store::stored_lock(Query& query) {
  if (!query.next()) return std::nullopt;
  auto found = lock_in(query);
  if (!found) {
    throw LockError(ErrorCode::internal,
                    "the row stored for this key is not a lock: another program writes to this database");
  }
  return found;
}

std::optional<Store::StoredLock> Store::find(const std::string& lock_key) {
  auto query = connection_.query(sql::find_by_key);
  query.bind(1, lock_key);
  return stored_lock(query);
}

std::optional<Store::StoredLock> Store::find(const LockId& id) {
  auto query = connection_.query(sql::find_by_id);
  query.bind(1, id.view());
  auto found = stored_lock(query);
  return found && found->record.lock_id == id ? found : std::nullopt;
}

std::optional<std::chrono::milliseconds> Store::ttl_if_clock_was_set_back(const StoredLock& lock, Timestamp now) {
  const auto ttl = lock.record.expires_at - lock.renewed_at;
  // Negative if an older version, which does not write renewed_at, extended the lock after the clock was set back.
  if (lock.renewed_at <= now + tolerance || ttl < std::chrono::milliseconds::zero()) return std::nullopt;
  return ttl;
}

AcquireReply Store::acquire(const AcquireRequest& request, FenceSource fences) {
  const std::string lock_key = lock_key_of(request.key);
  // Read before taking the write lock, so that an attempt on a held key does not write.
  if (const auto found = find(lock_key); found && found->record.lock_id != request.lock_id) {
    const Timestamp now = clock_();
    const auto expires_at = found->record.expires_at;
    if (is_live(expires_at, now) && !ttl_if_clock_was_set_back(*found, now)) {
      return Contended{free_in(expires_at, now)};
    }
  }

  return connection_.transaction(Durability::synced, [&]() -> AcquireReply {
    const Timestamp now = clock_();
    if (const auto found = find(lock_key); found && is_live(found->record.expires_at, now)) {
      const auto& [record, renewed_at] = *found;
      if (record.lock_id == request.lock_id) {
        remove_waiter(request.lock_id.view());
        return Granted{record.fence, record.expires_at, std::min(record.expires_at - now, request.ttl)};
      }
      const auto ttl = ttl_if_clock_was_set_back(*found, now);
      if (!ttl) return Contended{free_in(record.expires_at, now)};
      // Its holder may be alive, so the lock gets the most time that it can have left, from now on the current clock.
      set_expiry(record.lock_id, *ttl, now);
      return Contended{free_in(now + *ttl, now)};
    }
    const bool waited_for = has_waiters(lock_key);
    if (waited_for) {
      const auto turn = find_turn(lock_key, request.lock_id.view(), now);
      if (turn && turn->waiter != request.lock_id.view()) {
        return Contended{.free_in = turn->until - now, .reserved = true};
      }
    }

    const std::string fence_key = fence_storage_key("", lock_key, sqlite_storage_limit);
    const Fence fence =
        core::next_fence(fence_counter(fence_key), fences == FenceSource::clock ? core::clock_floor(now) : 0);
    const std::string fence_text = fence.str();
    const Timestamp expires_at = now + request.ttl;
    put_counter(fence_key, fence.value(), request.key);
    connection_.query(sql::put_lock)
        .bind(1, lock_key)
        .bind(2, request.lock_id.view())
        .bind(3, millis(expires_at))
        .bind(4, millis(now))
        .bind(5, fence_text)
        .bind(6, request.key.str())
        .bind(7, request.holder)
        .run();
    if (waited_for) {
      remove_waiter(request.lock_id.view());
      remove_after_turn(lock_key, now);
    }
    return Granted{fence, expires_at, request.ttl};
  });
}

std::uint64_t Store::fence_counter(const std::string& fence_key) {
  auto query = connection_.query(sql::find_counter);
  return query.bind(1, fence_key).next() ? static_cast<std::uint64_t>(query.number(0)) : 0;
}

void Store::put_counter(const std::string& fence_key, std::uint64_t counter, const Key& key) {
  connection_.query(sql::put_counter)
      .bind(1, fence_key)
      .bind(2, static_cast<std::int64_t>(counter))
      .bind(3, key.str())
      .run();
}

std::variant<LockRecord, Missing> Store::find_owned(const LockId& id, Timestamp now) {
  const auto found = find(id);
  if (!found) return Missing::not_found;
  if (!is_live(found->record.expires_at, now)) return Missing::expired;
  return found->record;
}

void Store::set_expiry(const LockId& id, std::chrono::milliseconds ttl, Timestamp now) {
  connection_.query(sql::set_expiry).bind(1, id.view()).bind(2, millis(now + ttl)).bind(3, millis(now)).run();
}

ReleaseReply Store::release(const LockId& id) {
  Woken woken;
  const auto reply = connection_.transaction(Durability::unsynced, [&]() -> ReleaseReply {
    const Timestamp now = clock_();
    const auto owned = find_owned(id, now);
    if (const auto* missing = std::get_if<Missing>(&owned)) return *missing;
    if (std::get<LockRecord>(owned).expires_at - now > max_cost_of_lost_release) connection_.expect_synced();
    connection_.query(sql::remove_lock).bind(1, id.view()).run();
    const std::string lock_key = lock_key_of(std::get<LockRecord>(owned).key);
    if (has_waiters(lock_key)) woken = pass_turn(lock_key, 1, now);
    return Released{};
  });
  notify(std::move(woken));
  return reply;
}

ExtendReply Store::extend(const LockId& id, std::chrono::milliseconds ttl) {
  return connection_.transaction(Durability::synced, [&]() -> ExtendReply {
    const Timestamp now = clock_();
    const auto owned = find_owned(id, now);
    if (const auto* missing = std::get_if<Missing>(&owned)) return *missing;
    set_expiry(id, ttl, now);
    return Extended{now + ttl, ttl};
  });
}

std::optional<LockRecord> Store::find_live(const Key& key) { return live_record(find(lock_key_of(key)), clock_()); }

std::optional<LockRecord> Store::find_live(const LockId& id) { return live_record(find(id), clock_()); }

void Store::remove_if_long_dead(const Key& key) {
  connection_.transaction(Durability::synced, [&] {
    const auto found = find(lock_key_of(key));
    if (found && is_removable(found->record.expires_at, clock_())) {
      connection_.query(sql::remove_lock).bind(1, found->record.lock_id.view()).run();
    }
    return true;
  });
}

CleanupReply Store::clean_up(const CleanupRequest& request) {
  if (request.mode == CleanupRequest::Mode::count) {
    auto query = connection_.query(sql::count_expired);
    query.bind(1, millis(core::removable_before(clock_(), request.older_than))).next();
    return {.count = static_cast<std::size_t>(query.number(0))};
  }
  return connection_.transaction(Durability::synced, [&]() -> CleanupReply {
    const auto before = core::removable_before(clock_(), request.older_than);
    auto query = connection_.query(sql::remove_expired);
    query.bind(1, millis(before)).bind(2, static_cast<std::int64_t>(request.limit));
    CleanupReply reply;
    while (query.next()) ++reply.count;
    reply.more = reply.count == request.limit;
    return reply;
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// Administration

ListedLock Store::listed(const LockRecord& record, const std::string& lock_key) {
  auto query = connection_.query(sql::count_waiters);
  query.bind(1, lock_key).next();
  return core::listed(record, static_cast<std::size_t>(query.number(0)));
}

LockPage Store::list(const ListRequest& request) {
  return connection_.snapshot([&] {
    LockPage page;
    page.now = clock_();
    const auto& begin = std::max(request.prefix, request.cursor);
    auto query = connection_.query(sql::list_locks);
    query.bind(1, begin).bind(2, request.cursor).bind(3, max_listed);
    for (std::int64_t examined = 1; query.next(); ++examined) {
      auto lock_key = query.text(7);
      if (!lock_key.starts_with(request.prefix)) break;
      // A row that is not a lock is left out.
      const auto found = lock_in(query);
      if (found && is_live(found->record.expires_at, page.now)) page.locks.push_back(listed(found->record, lock_key));
      if (examined == max_listed || page.locks.size() == request.limit) {
        page.cursor = std::move(lock_key);
        break;
      }
    }
    return page;
  });
}

KeyState Store::inspect(const Key& key) {
  return connection_.snapshot([&] {
    const std::string lock_key = lock_key_of(key);
    KeyState state;
    state.now = clock_();
    if (const auto live = live_record(find(lock_key), state.now)) state.lock = listed(*live, lock_key);
    state.fence = core::fence_of_counter(fence_counter(fence_storage_key("", lock_key, sqlite_storage_limit)));
    return state;
  });
}

bool Store::break_lock(const Key& key, Fence fence) {
  Woken woken;
  const bool broken = connection_.transaction(Durability::synced, [&] {
    const Timestamp now = clock_();
    const std::string lock_key = lock_key_of(key);
    const auto live = live_record(find(lock_key), now);
    if (!live || live->fence != fence) return false;
    connection_.query(sql::remove_lock).bind(1, live->lock_id.view()).run();
    if (has_waiters(lock_key)) woken = pass_turn(lock_key, 1, now);
    return true;
  });
  notify(std::move(woken));
  return broken;
}

Fence Store::raise_fence(const Key& key, Fence fence) {
  return connection_.transaction(Durability::synced, [&] {
    const std::string fence_key = fence_storage_key("", lock_key_of(key), sqlite_storage_limit);
    const auto counter = core::fence_of_counter(fence_counter(fence_key));
    if (counter >= fence) return counter;
    put_counter(fence_key, fence.value(), key);
    return fence;
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// The queue. Its changes are never synced: the waiters are processes of this host, so a crash of the host ends them,
// too.

bool Store::has_waiters(const std::string& lock_key) {
  return connection_.query(sql::has_waiters).bind(1, lock_key).next();
}

std::optional<Store::Turn> Store::find_turn(const std::string& lock_key, std::string_view waiter, Timestamp now) {
  auto query = connection_.query(sql::find_turn);
  query.bind(1, lock_key).bind(2, millis(now)).bind(3, millis(now + core::reservation_time)).bind(4, waiter);
  if (!query.next()) return std::nullopt;
  return Turn{.waiter = query.text(0), .until = timestamp(query.number(1))};
}

void Store::remove_waiter(std::string_view waiter) { connection_.query(sql::remove_waiter).bind(1, waiter).run(); }

std::int64_t Store::remove_after_turn(const std::string& lock_key, Timestamp now) {
  auto query = connection_.query(sql::remove_after_turn);
  query.bind(1, lock_key).bind(2, millis(now)).bind(3, millis(now + core::reservation_time));
  std::int64_t count = 0;
  while (query.next()) ++count;
  return count;
}

Store::Woken Store::pass_turn(const std::string& lock_key, std::int64_t count, Timestamp now) {
  auto query = connection_.query(sql::give_turn);
  query.bind(1, lock_key).bind(2, millis(now + core::reservation_time)).bind(3, count);
  Woken woken;
  while (query.next()) woken.push_back(query.text(0));
  return woken;
}

void Store::notify(Woken woken) {
  if (connection_.in_group()) {
    std::ranges::move(woken, std::back_inserter(woken_by_group_));
  } else {
    for (const auto& waiter : woken) wake_files_.notify(waiter);
  }
}

bool Store::has_place(const LockId& waiter) {
  const Timestamp now = clock_();
  auto query = connection_.query(sql::find_waiter);
  if (!query.bind(1, waiter.view()).next()) return false;
  const bool has_turn = query.number(0) != 0;  // NULL is read as 0
  const auto seen_at = query.number(1);
  return !has_turn && seen_at <= millis(now) && seen_at >= millis(now - max_seen_age);
}

void Store::join(const Key& key, const LockId& waiter) {
  // Waiters call this often, and usually there is nothing to do. They must not block writers then.
  if (has_place(waiter)) return;
  connection_.transaction(Durability::unsynced, [&] {
    const std::string lock_key = lock_key_of(key);
    const Timestamp now = clock_();
    // A waiter whose turn is over rejoins at the end of the queue.
    connection_.query(sql::remove_waiter_after_turn)
        .bind(1, waiter.view())
        .bind(2, millis(now))
        .bind(3, millis(now + core::reservation_time))
        .run();
    connection_.query(sql::join)
        .bind(1, lock_key)
        .bind(2, waiter.view())
        .bind(3, millis(now))
        .bind(4, millis(now - tolerance))
        .run();
    // Across all keys, because keys without waiters are never checked otherwise.
    connection_.query(sql::set_missing_seen_at).bind(1, millis(now)).run();
    connection_.query(sql::purge_waiters).bind(1, millis(now - dead_after)).bind(2, millis(now + dead_after)).run();
    return true;
  });
}

void Store::leave(const Key& key, const LockId& waiter) {
  notify(connection_.transaction(Durability::unsynced, [&] {
    const Timestamp now = clock_();
    const std::string lock_key = lock_key_of(key);
    const auto turn = find_turn(lock_key, waiter.view(), now);
    const bool had_turn = turn && turn->waiter == waiter.view();
    remove_waiter(waiter.view());
    const bool passes_on = had_turn && !find_turn(lock_key, "", now) && !find_live(key);
    return passes_on ? pass_turn(lock_key, 1, now) : Woken{};
  }));
}

std::string Store::stored_key(const Key& key) { return lock_key_of(key); }

std::vector<std::string> Store::waiters_with_turn() {
  std::vector<std::string> waiters;
  auto query = connection_.query(sql::find_turns);
  while (query.next()) waiters.push_back(query.text(0));
  return waiters;
}

std::map<std::string, Store::Queue, std::less<>> Store::free_queues(const std::set<std::string>& stored_keys) {
  return connection_.snapshot([&] {
    const Timestamp now = clock_();
    std::map<std::string, Queue, std::less<>> queues;
    for (const auto& key : stored_keys) {
      auto query = connection_.query(sql::find_free_queue);
      query.bind(1, key).bind(2, millis(now - tolerance));
      while (query.next()) {
        const auto turn_until = query.number(1);  // NULL is read as 0
        queues[key].push_back({.waiter = query.text(0),
                               .turn_until = turn_until != 0 ? std::optional(timestamp(turn_until)) : std::nullopt});
      }
    }
    return queues;
  });
}

Store::QueueState Store::queue_state(const Queue& queue, const LockId& waiter, Timestamp now) {
  // A turn that ends later than any turn given now was given before the clock was set back.
  std::optional<Timestamp> foreign_turn_until;
  for (const auto& [name, turn_until] : queue) {
    if (!turn_until || *turn_until <= now || *turn_until > now + core::reservation_time) continue;
    if (name == waiter.view()) return {.try_now = true};
    foreign_turn_until = turn_until;
  }
  if (foreign_turn_until) return {.recheck_at = foreign_turn_until};
  for (const auto& [name, turn_until] : queue) {
    // The checking waiter counts even if its turn came and went before it was notified.
    if (name == waiter.view()) return {.try_now = true};
    if (!turn_until) break;
  }
  // After an unused turn, several waiters were notified together. They get half the time.
  const bool unused = !queue.empty() && queue.front().turn_until;
  return {.recheck_at = now + core::reservation_time / (unused ? 2 : 1), .stalled = true};
}

void Store::pass_stalled_turn(const Key& key) {
  notify(connection_.transaction(Durability::unsynced, [&] {
    const Timestamp now = clock_();
    const std::string lock_key = lock_key_of(key);
    if (find_live(key) || find_turn(lock_key, "", now)) return Woken{};
    constexpr std::int64_t growth = 4;
    const auto unused = remove_after_turn(lock_key, now);
    return pass_turn(lock_key, std::clamp<std::int64_t>(unused * growth, 1, max_turns_at_once), now);
  }));
}

void Store::begin_group(Durability least) noexcept {
  woken_by_group_.clear();
  connection_.begin_group(least);
}

void Store::commit_group() {
  connection_.commit_group();
  for (const auto& waiter : std::exchange(woken_by_group_, {})) wake_files_.notify(waiter);
}

Store::Health Store::health() {
  const auto answer = [this](std::string_view sql) {
    auto query = connection_.query(sql);
    return query.next() ? query.text(0) : "";
  };
  connection_.transaction(Durability::synced, [] { return true; });
  std::set<std::string> schema;
  auto names = connection_.query("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite@_%' ESCAPE '@'");
  while (names.next()) schema.insert(names.text(0));
  std::int64_t highest = 0;
  if (schema.contains("syncguard_fence_counters")) {
    auto query = connection_.query(sql::find_highest_counter);
    if (query.next()) highest = query.number(0);  // NULL is read as 0
  }
  return {.journal_mode = answer("PRAGMA journal_mode"),
          .schema = std::move(schema),
          .integrity = answer("PRAGMA quick_check(1)"),
          .highest_counter = static_cast<std::uint64_t>(std::max<std::int64_t>(highest, 0)),
          .now = clock_()};
}

std::set<std::string> Store::expected_schema() {
  return {"idx_syncguard_locks_expires",
          "idx_syncguard_locks_lock_id",
          "idx_syncguard_locks_waiters_key",
          "idx_syncguard_locks_waiters_key_turn",
          "idx_syncguard_locks_waiters_waiter",
          "syncguard_fence_counters",
          "syncguard_locks",
          "syncguard_locks_waiters"};
}

}  // namespace syncguard::sqlite
