#include "backends/sqlite/store.hpp"

#include "core/expiry.hpp"
#include "core/fence_limit.hpp"
#include "core/listed.hpp"
#include "core/validation.hpp"
#include "sqlite_sql.hpp"

#include <syncguard/liveness.hpp>
#include <syncguard/storage_key.hpp>

#include <algorithm>
#include <utility>

namespace syncguard::sqlite {
namespace {

std::int64_t millis(Timestamp time) { return time.time_since_epoch().count(); }
Timestamp timestamp(std::int64_t millis) { return Timestamp(std::chrono::milliseconds(millis)); }

std::string lock_key_of(const Key& key) { return lock_storage_key("", key, sqlite_storage_limit); }

// Later than any clock's time, but the sum of two such values does not overflow.
constexpr std::int64_t latest_millis = 9'000'000'000'000'000;

// How soon a look is repeated if another process keeps the database busy.
constexpr std::chrono::milliseconds busy_pause{20};

// If a crash of the host undoes a release, the lock is held again for the rest of its ttl. If that could be longer than
// this, the release waits for the disk.
constexpr std::chrono::seconds max_cost_of_lost_release{60};

// How many rows a page of a list examines at most, expired ones included.
constexpr std::int64_t max_listed = 2000;

// The entry in the current row; nullopt if the row is not a waiter's.
std::optional<core::QueueEntry> entry_in(const Query& query) {
  const auto waiter = query.text(0);
  if (!LockId::is_valid(waiter)) return std::nullopt;
  return core::QueueEntry{.waiter = LockId(waiter), .place = query.number(1), .seen = timestamp(query.number(2))};
}

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
  if (lock.renewed_at <= now + tolerance) return std::nullopt;
  return std::max(lock.record.expires_at - lock.renewed_at, std::chrono::milliseconds::zero());
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
    const std::string fence_key = fence_storage_key("", lock_key, sqlite_storage_limit);
    Found found{.now = clock_(), .lock = find(lock_key), .counter = fence_counter(fence_key)};
    keep_ttl_if_clock_was_set_back(found, request.lock_id);
    find_queue(found, lock_key, 0);
    const auto floor = fences == FenceSource::clock ? core::clock_floor(found.now) : 0;
    const auto [reply, changes] = core::acquire(found.view(), request, floor);
    if (const auto& lock = changes.put_holder) {
      put_counter(fence_key, lock->fence.value(), request.key);
      const std::string fence_text = lock->fence.str();
      connection_.query(sql::put_lock)
          .bind(1, lock_key)
          .bind(2, lock->lock_id.view())
          .bind(3, millis(lock->expires_at))
          .bind(4, millis(lock->acquired_at))
          .bind(5, fence_text)
          .bind(6, lock->key.str())
          .bind(7, lock->holder)
          .run();
    }
    if (found.has_waiters) apply(changes, lock_key, &request.lock_id);
    return reply;
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

void Store::set_expiry(const LockId& id, std::chrono::milliseconds ttl, Timestamp now) {
  connection_.query(sql::set_expiry).bind(1, id.view()).bind(2, millis(now + ttl)).bind(3, millis(now)).run();
}

void Store::keep_ttl_if_clock_was_set_back(Found& found, const LockId& caller) {
  if (!needs_new_expiry(found, caller)) return;
  auto& record = found.lock->record;
  const auto ttl = *ttl_if_clock_was_set_back(*found.lock, found.now);
  set_expiry(record.lock_id, ttl, found.now);
  record.expires_at = found.now + ttl;
}

bool Store::needs_new_expiry(const Found& found, const LockId& caller) {
  return found.lock && found.lock->record.lock_id != caller && ttl_if_clock_was_set_back(*found.lock, found.now);
}

ReleaseReply Store::release(const LockId& id) {
  Woken woken;
  const auto reply = connection_.transaction(Durability::unsynced, [&]() -> ReleaseReply {
    Found found{.now = clock_(), .lock = find(id)};
    if (!found.lock) return Missing::not_found;
    const auto& record = found.lock->record;
    const std::string lock_key = lock_key_of(record.key);
    find_next_turn(found, lock_key);
    const auto [result, changes] = core::release(found.view(), id);
    if (changes.remove_holder) connection_.query(sql::remove_lock).bind(1, id.view()).run();
    woken = apply(changes, lock_key);
    if (record.expires_at - found.now > max_cost_of_lost_release) connection_.sync_changes();
    return result;
  });
  notify(woken);
  return reply;
}

ExtendReply Store::extend(const LockId& id, std::chrono::milliseconds ttl) {
  return connection_.transaction(Durability::synced, [&]() -> ExtendReply {
    const Found found{.now = clock_(), .lock = find(id)};
    const auto [reply, changes] = core::extend(found.view(), id, ttl);
    if (changes.set_expiry) set_expiry(id, ttl, found.now);
    return reply;
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

ListedLock Store::listed(const LockRecord& record, const std::string& lock_key, Timestamp now) {
  auto query = connection_.query(sql::count_waiters);
  query.bind(1, lock_key).bind(2, millis(now - core::dead_after)).bind(3, millis(now + core::dead_after)).next();
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
      if (found && is_live(found->record.expires_at, page.now)) {
        page.locks.push_back(listed(found->record, lock_key, page.now));
      }
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
    if (const auto live = live_record(find(lock_key), state.now)) {
      core::set_holder(state, listed(*live, lock_key, state.now));
    }
    state.fence = core::fence_of_counter(fence_counter(fence_storage_key("", lock_key, sqlite_storage_limit)));
    return state;
  });
}

bool Store::break_lock(const Key& key, Fence fence) {
  Woken woken;
  const bool is_broken = connection_.transaction(Durability::synced, [&] {
    const std::string lock_key = lock_key_of(key);
    Found found{.now = clock_(), .lock = find(lock_key)};
    find_next_turn(found, lock_key);
    const auto [broken, changes] = core::break_lock(found.view(), fence);
    if (broken) connection_.query(sql::remove_lock).bind(1, found.lock->record.lock_id.view()).run();
    woken = apply(changes, lock_key);
    return broken;
  });
  notify(woken);
  return is_broken;
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

core::KeyView Store::Found::view() const {
  return {.now = now,
          .holder = lock ? &lock->record : nullptr,
          .counter = counter,
          .turns = turns,
          .front = front,
          .own = own ? &*own : nullptr,
          .last_place = last_place};
}

void Store::find_queue(Found& found, const std::string& lock_key, std::size_t front) {
  // Checked first: it costs less than the other statements, and most keys have no waiters.
  found.has_waiters = connection_.query(sql::has_waiters).bind(1, lock_key).next();
  if (!found.has_waiters) return;
  auto turns = connection_.query(sql::find_turns);
  turns.bind(1, lock_key);
  while (turns.next()) {
    if (const auto entry = entry_in(turns)) found.turns.push_back({*entry, timestamp(turns.number(3))});
  }
  if (front > 0) find_front(found, lock_key, front);
}

void Store::find_front(Found& found, const std::string& lock_key, std::size_t count) {
  found.front.clear();
  auto query = connection_.query(sql::find_front);
  query.bind(1, lock_key).bind(2, static_cast<std::int64_t>(count));
  while (query.next()) {
    if (const auto entry = entry_in(query)) found.front.push_back(*entry);
  }
}

void Store::find_next_turn(Found& found, const std::string& lock_key) {
  find_queue(found, lock_key, 1);
  const bool enough = found.front.empty() || core::counts(found.front.front(), found.now);
  if (found.has_waiters && !enough) find_front(found, lock_key, core::max_front);
}

Store::Found Store::find_for_waiter(const std::string& lock_key, const LockId& waiter) {
  Found found{.now = clock_(), .lock = find(lock_key)};
  find_queue(found, lock_key, 1);
  if (!found.has_waiters) return found;
  auto own = connection_.query(sql::find_entry);
  if (own.bind(1, waiter.view()).next()) found.own = entry_in(own);
  auto last = connection_.query(sql::find_last_place);
  if (last.bind(1, lock_key).next()) found.last_place = last.number(0);
  return found;
}

Store::Woken Store::apply(const core::KeyChanges& changes, const std::string& lock_key, const LockId* own) {
  if (changes.clear_turns) connection_.query(sql::clear_turns).bind(1, lock_key).run();
  if (changes.remove_own) connection_.query(sql::remove_waiter).bind(1, own->view()).run();
  if (changes.doubt) {
    connection_.query(sql::doubt)
        .bind(1, lock_key)
        .bind(2, own->view())
        .bind(3, static_cast<std::int64_t>(core::max_doubted))
        .run();
  }
  for (const auto& waiter : changes.remove) connection_.query(sql::remove_waiter).bind(1, waiter.view()).run();
  if (const auto& entry = changes.put_entry) {
    connection_.query(sql::put_entry)
        .bind(1, lock_key)
        .bind(2, entry->waiter.view())
        .bind(3, entry->place)
        .bind(4, millis(*entry->seen))
        .run();
  }
  if (const auto& turn = changes.put_turn) {
    connection_.query(sql::put_turn)
        .bind(1, lock_key)
        .bind(2, turn->entry.waiter.view())
        .bind(3, turn->entry.place)
        .bind(4, millis(*turn->entry.seen))
        .bind(5, millis(turn->until))
        .run();
  }
  return changes.wake ? Woken{changes.wake->str()} : Woken{};
}

void Store::notify(const Woken& woken) {
  if (connection_.in_group()) {
    woken_by_group_.insert(woken_by_group_.end(), woken.begin(), woken.end());
  } else {
    for (const auto& waiter : woken) wake_files_.notify(waiter);
  }
}

core::WaiterReply Store::join(const Key& key, const core::WaiterRequest& request) {
  const std::string lock_key = lock_key_of(key);
  // A waiter that retries usually finds nothing to do. It must not block writers then.
  const auto unchanged = connection_.snapshot([&]() -> std::optional<core::WaiterReply> {
    const auto found = find_for_waiter(lock_key, request.waiter);
    const auto [reply, changes] = core::join(found.view(), request);
    return changes.empty() && !needs_new_expiry(found, request.waiter) ? std::optional(reply) : std::nullopt;
  });
  if (unchanged) return *unchanged;
  return connection_.transaction(Durability::unsynced, [&] {
    auto found = find_for_waiter(lock_key, request.waiter);
    keep_ttl_if_clock_was_set_back(found, request.waiter);
    const auto [reply, changes] = core::join(found.view(), request);
    apply(changes, lock_key, &request.waiter);
    connection_.query(sql::purge_waiters)
        .bind(1, millis(found.now - core::purge_after))
        .bind(2, millis(found.now + core::purge_after))
        .bind(3, static_cast<std::int64_t>(core::max_purged))
        .run();
    return reply;
  });
}

void Store::leave(const Key& key, const LockId& waiter) {
  notify(connection_.transaction(Durability::unsynced, [&] {
    const std::string lock_key = lock_key_of(key);
    Found found{.now = clock_(), .lock = find(lock_key)};
    find_next_turn(found, lock_key);
    return found.has_waiters ? apply(core::leave(found.view(), waiter), lock_key, &waiter) : Woken{};
  }));
}

std::vector<core::WaiterReply> Store::look(std::span<const backends::Waiters::Look> looks) {
  std::vector<core::WaiterReply> replies;
  std::vector<std::size_t> changing;
  connection_.snapshot([&] {
    for (const auto& look : looks) {
      const auto found = find_for_waiter(lock_key_of(look.key), look.id);
      const auto [reply, changes] = core::look(found.view(), look.request());
      if (!changes.empty() || needs_new_expiry(found, look.id)) changing.push_back(replies.size());
      replies.push_back(reply);
    }
    return true;
  });
  if (changing.empty()) return replies;
  try {
    connection_.transaction(Durability::unsynced, [&] {
      for (const auto i : changing) {
        const auto lock_key = lock_key_of(looks[i].key);
        auto found = find_for_waiter(lock_key, looks[i].id);
        keep_ttl_if_clock_was_set_back(found, looks[i].id);
        const auto [reply, changes] = core::look(found.view(), looks[i].request());
        apply(changes, lock_key, &looks[i].id);
        replies[i] = reply;
      }
      return true;
    });
  } catch (const LockError& error) {
    if (error.code() != ErrorCode::network_timeout) throw;
    for (const auto i : changing) replies[i] = {.free_in = busy_pause, .is_first = true};
  }
  return replies;
}

std::vector<LockId> Store::waiters_with_turn() {
  std::vector<LockId> waiters;
  auto query = connection_.query(sql::find_waiters_with_turn);
  while (query.next()) {
    if (const auto waiter = query.text(0); LockId::is_valid(waiter)) waiters.emplace_back(waiter);
  }
  return waiters;
}

void Store::begin_group() noexcept {
  woken_by_group_.clear();
  connection_.begin_group();
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
  connection_.transaction(Durability::unsynced, [] { return true; });
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
  return {"idx_syncguard_locks_expires",      "idx_syncguard_locks_lock_id", "idx_syncguard_locks_waiters_place",
          "idx_syncguard_locks_waiters_turn", "syncguard_fence_counters",    "syncguard_locks",
          "syncguard_locks_waiters"};
}

}  // namespace syncguard::sqlite
