-- Locks and their fence counters, by plain statements: what reads, what the functions need not do, and the operations on tables that setup
-- never saw, because another library made them. Those tables have neither a queue nor the columns {holder} and {waiter_count} read:
-- see statements.cpp. Each statement becomes a constant with its name: see cmake/SyncGuardEmbed.cmake.
--
-- A trigger, a rule or a row-level security policy may discard a change without an error. {discarded} then makes the statement fail, with a
-- text in the server's message that is the same in every language: see errors.cpp. It is not a constant, because the server would convert a
-- constant before it executes anything.
--
-- "expires_at_ms + 0" keeps the server from using the index of that column to find a single lock. It may plan to do so while few locks are
-- held, and would later read every live lock. A condition that reads the clock itself cannot use an index anyway.

-- name: lock_key
-- $1: key. Excludes all other SyncGuard clients for this key until the transaction ends. A separate statement, because a statement that
-- waits and then reads uses a snapshot from before the wait.
SELECT pg_advisory_xact_lock(hashtext($1))

-- name: lock_id
-- $1: lock id. Like lock_key, for the key of this lock.
SELECT pg_advisory_xact_lock(hashtext(key)) FROM {locks} WHERE lock_id = $1

-- name: acquire
-- $1: key, $2: lock id, $3: ttl in ms, $4: key of the counter, $5: the user's key, $6: whether fences follow the clock. Returns one row:
-- ({yes}, fence, expires at, remaining), ({no}, -, -, free in), or {counter_at_end}. Returns no row if a client that does not take the
-- advisory lock was faster.
WITH held AS MATERIALIZED (
  SELECT lock_id, expires_at_ms, fence FROM {locks} WHERE key = $1 FOR NO KEY UPDATE
), moment AS MATERIALIZED (
  -- Read after the row is locked, because the time of waiting must not count as ttl.
  SELECT {now} AS now, {clock_fence} AS clock_fence FROM (SELECT count(*) FROM held) AS locked
), live AS MATERIALIZED (
  SELECT held.* FROM held, moment WHERE held.expires_at_ms > moment.now - {tolerance}
), counter AS MATERIALIZED (
  SELECT coalesce((SELECT fence FROM {counters} WHERE fence_key = $4), 0) AS fence,
    CASE WHEN $6::boolean AND clock_fence BETWEEN 1 AND {warn_above} THEN clock_fence ELSE 1 END AS least_fence
  FROM moment
), counted AS (
  INSERT INTO {counters} AS counters (fence_key, fence, key_debug)
  SELECT $4, least_fence, $5 FROM counter
  WHERE NOT EXISTS (SELECT FROM live) AND counter.fence >= 0 AND counter.fence < {refuse_above}
  ON CONFLICT (fence_key) DO UPDATE SET fence = greatest(counters.fence + 1, excluded.fence)
  RETURNING counters.fence
), taken AS (
  INSERT INTO {locks} AS locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key)
  SELECT $1, $2, moment.now + $3::bigint, moment.now, lpad(counted.fence::text, 15, '0'), $5
  FROM counted, moment, counter
  ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms,
    acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key
    WHERE locks.expires_at_ms <= excluded.acquired_at_ms - {tolerance}
  RETURNING locks.fence, locks.expires_at_ms
), confirmed AS (
  -- A repeated attempt. The commit of the first one may have been canceled while it waited for a synchronous standby, so the row is written
  -- again: this commit waits for the standby, too. No key column changes, so that the row lock does not exclude FOR KEY SHARE.
  UPDATE {locks} AS locks SET acquired_at_ms = locks.acquired_at_ms FROM live WHERE locks.key = $1 AND live.lock_id COLLATE "C" = $2
  RETURNING locks.fence, locks.expires_at_ms
)
-- More than the ttl is left if the clock was set back.
SELECT {yes} AS verdict, fence, expires_at_ms, least(expires_at_ms - now, $3::bigint) AS time, 1 AS place FROM confirmed, moment
UNION ALL
SELECT {no}, NULL, NULL, expires_at_ms + {tolerance} - now, 2 FROM live, moment WHERE lock_id COLLATE "C" <> $2
UNION ALL
SELECT {yes}, taken.fence, expires_at_ms, expires_at_ms - now, 3 FROM taken, moment
UNION ALL
SELECT {counter_at_end}, NULL, NULL, NULL, 4 FROM counter WHERE fence >= {refuse_above} OR fence < 0
UNION ALL
SELECT {discarded}, NULL, NULL, NULL, 0 FROM counter, moment
WHERE CASE
  WHEN EXISTS (SELECT FROM live) THEN EXISTS (SELECT FROM live WHERE lock_id COLLATE "C" = $2) AND NOT EXISTS (SELECT FROM confirmed)
  WHEN counter.fence < 0 OR counter.fence >= {refuse_above} THEN false
  WHEN NOT EXISTS (SELECT FROM counted WHERE fence >= least_fence) THEN true
  WHEN EXISTS (SELECT FROM taken) THEN NOT EXISTS (SELECT FROM taken WHERE expires_at_ms = now + $3::bigint)
  -- A client that does not take the advisory lock cannot be faster if the row is locked.
  ELSE EXISTS (SELECT FROM held) END
ORDER BY place LIMIT 1

-- name: release
-- $1: lock id. Returns one row: {yes}, {not_found} or {expired}. The id is compared byte by byte after the row was found and locked,
-- because the column's collation may treat different ids as equal.
WITH held AS MATERIALIZED (
  SELECT key, lock_id, expires_at_ms FROM {locks} WHERE lock_id = $1 FOR UPDATE
), moment AS MATERIALIZED (
  SELECT {now} AS now FROM (SELECT count(*) FROM held) AS locked
), gone AS (
  DELETE FROM {locks} AS locks USING held, moment
  WHERE locks.key = held.key AND held.lock_id COLLATE "C" = $1 AND held.expires_at_ms > moment.now - {tolerance}
  RETURNING locks.key
)
SELECT CASE WHEN EXISTS (SELECT FROM gone) THEN {yes}
  {else_why_not} AS verdict

-- name: extend
-- $1: lock id, $2: ttl in ms. Returns one row: ({yes}, expires at, remaining), {not_found} or {expired}. Compares the id as in release.
WITH held AS MATERIALIZED (
  SELECT key, lock_id, expires_at_ms FROM {locks} WHERE lock_id = $1 FOR UPDATE
), moment AS MATERIALIZED (
  SELECT {now} AS now FROM (SELECT count(*) FROM held) AS locked
), changed AS (
  UPDATE {locks} AS locks SET expires_at_ms = moment.now + $2::bigint FROM held, moment
  WHERE locks.key = held.key AND held.lock_id COLLATE "C" = $1 AND held.expires_at_ms > moment.now - {tolerance}
  RETURNING locks.expires_at_ms
)
SELECT CASE WHEN EXISTS (SELECT FROM changed, moment WHERE expires_at_ms = now + $2::bigint) THEN {yes}
  {else_why_not} AS verdict,
  (SELECT expires_at_ms FROM changed) AS expires_at_ms, $2::bigint AS remaining

-- name: else_why_not
-- Why the lock with the id $1 was not changed. A policy may let this user read the row but not lock it, so it is read again.
WHEN EXISTS (SELECT FROM {locks}, moment WHERE lock_id = $1 AND lock_id COLLATE "C" = $1 AND expires_at_ms + 0 > now - {tolerance}) THEN {discarded}
  WHEN EXISTS (SELECT FROM held WHERE lock_id COLLATE "C" = $1) THEN {expired} ELSE {not_found} END

-- name: discarded
(SELECT 'syncguard: change discarded' FROM moment)::bigint

-- name: lookup_key
-- $1: key
SELECT user_key, lock_id, expires_at_ms, acquired_at_ms, fence, {holder} FROM {locks}
WHERE key = $1 AND expires_at_ms > {now} - {tolerance}

-- name: lookup_id
-- $1: lock id
SELECT user_key, lock_id, expires_at_ms, acquired_at_ms, fence, {holder} FROM {locks}
WHERE lock_id = $1 AND expires_at_ms > {now} - {tolerance}

-- name: list_locks
-- $1: the key before the first one, $2: the prefix of the user's keys, $3: the maximum number. Examines at most 2,000 locks, in the order
-- of keys in the column's own collation, so that the index has that order. Returns one row (0, the last key that was examined, how many
-- were, now), then for each live lock (1, key, expires at, acquired at, user's key, fence, label of the holder, number of waiters).
WITH moment AS MATERIALIZED (
  SELECT {now} AS now
), examined AS MATERIALIZED (
  SELECT key, user_key, expires_at_ms, acquired_at_ms, fence, {holder} AS holder FROM {locks} WHERE key > $1 ORDER BY key LIMIT 2000
), live AS MATERIALIZED (
  SELECT examined.* FROM examined, moment
  WHERE expires_at_ms > now - {tolerance} AND starts_with(user_key COLLATE "C", $2) ORDER BY key LIMIT $3::bigint
)
SELECT * FROM (
  SELECT 0 AS place, coalesce((SELECT max(key) FROM examined), '') AS key, (SELECT count(*) FROM examined) AS number, now AS time,
    '' AS user_key, '' AS fence, '' AS holder, NULL AS waiters FROM moment
  UNION ALL
  SELECT 1, key, expires_at_ms, acquired_at_ms, user_key, fence, holder, {waiter_count} FROM live AS found, moment
) AS page ORDER BY place, key

-- name: inspect
-- $1: key, $2: key of the counter. Returns one row: now, the counter or nothing, and if the key is locked: user's key, expires at, acquired
-- at, fence, label of the holder, number of waiters.
SELECT now, (SELECT fence FROM {counters} WHERE fence_key = $2), user_key, expires_at_ms, acquired_at_ms, fence, {holder}, {waiter_count}
FROM (SELECT {now} AS now OFFSET 0) AS moment LEFT JOIN {locks} AS found ON key = $1 AND expires_at_ms + 0 > now - {tolerance}

-- name: waiter_count
-- Of those that count: see core/key_rules.hpp.
(SELECT count(*) FROM {waiters} AS waiters WHERE waiters.key = found.key AND waiters.turn_until_ms = 0
  AND waiters.seen_at_ms BETWEEN now - {dead_after} AND now + {dead_after})

-- name: break_lock
-- $1: key, $2: fence. Returns {yes} if the live lock had this fence and was removed, else {no}.
WITH held AS MATERIALIZED (
  SELECT key, fence, expires_at_ms FROM {locks} WHERE key = $1 FOR UPDATE
), moment AS MATERIALIZED (
  SELECT {now} AS now FROM (SELECT count(*) FROM held) AS locked
), gone AS (
  DELETE FROM {locks} AS locks USING held, moment
  WHERE locks.key = held.key AND held.fence COLLATE "C" = $2 AND held.expires_at_ms > moment.now - {tolerance}
  RETURNING locks.key
)
SELECT CASE WHEN EXISTS (SELECT FROM gone) THEN {yes}
  WHEN EXISTS (SELECT FROM {locks}, moment WHERE key = $1 AND fence COLLATE "C" = $2 AND expires_at_ms + 0 > now - {tolerance}) THEN {discarded}
  ELSE {no} END AS verdict

-- name: raise_fence
-- $1: key of the counter, $2: the least value, $3: the user's key. Returns the new value.
INSERT INTO {counters} AS counters (fence_key, fence, key_debug) VALUES ($1, $2::bigint, $3)
ON CONFLICT (fence_key) DO UPDATE SET fence = greatest(counters.fence, excluded.fence)
RETURNING counters.fence

-- name: remove_dead
-- $1: key. Removes a lock that expired so long ago that no holder can still extend it: see is_removable in syncguard/liveness.hpp.
DELETE FROM {locks} WHERE key = $1 AND {now} - expires_at_ms > 2000

-- name: count_expired
-- $1: how long ago locks must have expired, in milliseconds.
SELECT count(*) FROM {locks} WHERE expires_at_ms < (SELECT {now} - $1::bigint)

-- name: remove_expired
-- $1: as in count_expired, $2: the maximum number. Skips rows that an acquire is about to replace.
DELETE FROM {locks} WHERE key IN (
  SELECT key FROM {locks} WHERE expires_at_ms < (SELECT {now} - $1::bigint) ORDER BY expires_at_ms LIMIT $2::bigint
  FOR UPDATE SKIP LOCKED)
RETURNING key

-- name: holder
CASE WHEN holder_lock_id COLLATE "C" = lock_id THEN holder ELSE '' END
