-- The queue of waiters: whole statements, and parts of the statements in locks.sql. Each becomes a constant with its name: see
-- cmake/SyncGuardEmbed.cmake.

-- name: join
-- $1: key, $2: waiter, $3: the requested length of its reservation in ms. A waiter that is already in the queue keeps its place. If the key
-- is locked again, its turn was lost to a client without a queue and is reset; otherwise no release would wake it again.
INSERT INTO {waiters} AS waiters (key, waiter, seen_at_ms{reservation_column})
SELECT $1, $2, {now}{reservation_value} WHERE $3::bigint IS NOT NULL
ON CONFLICT (waiter) DO UPDATE SET seen_at_ms = excluded.seen_at_ms{reservation_update},
  turn_until_ms = CASE WHEN EXISTS (SELECT FROM {locks} WHERE key = $1 AND expires_at_ms + 0 > excluded.seen_at_ms - 1000)
    THEN NULL ELSE waiters.turn_until_ms END

-- name: leave
-- $1: key, $2: waiter. If the waiter had its turn and the lock is free, the turn is passed on.
WITH moment AS MATERIALIZED (
  SELECT {now} AS now
), mine AS (
  DELETE FROM {waiters} WHERE waiter = $2 RETURNING turn_until_ms
), gone AS (
  SELECT $1 AS key FROM mine, moment WHERE turn_until_ms > now
    AND NOT EXISTS (SELECT FROM {locks} WHERE key = $1 AND expires_at_ms + 0 > now - 1000)
){pass_turn}
SELECT 1{notify_next_waiter}

-- name: seen
-- $1: waiters, as an array. Records that they are alive. A locked row is skipped: its waiter is joining again, being woken or leaving.
UPDATE {waiters} SET seen_at_ms = {now} WHERE position = ANY(ARRAY(
  SELECT position FROM {waiters} WHERE waiter = ANY($1::text[]) FOR UPDATE SKIP LOCKED))

-- name: purge
-- Removes waiters that died long ago. Entries that nothing else removes, because no other waiter joined their key, are among the oldest. A
-- locked row is skipped: another client is removing it.
DELETE FROM {waiters} WHERE position = ANY(ARRAY(
  SELECT position FROM {waiters} WHERE position = ANY(ARRAY(SELECT position FROM {waiters} ORDER BY position LIMIT 1000))
    AND seen_at_ms < {now} - 60000 FOR UPDATE SKIP LOCKED))

-- name: lapsed
-- $1: waiters, as an array. Returns those whose key is free because another waiter let its turn lapse. Marks all waiters of that key as
-- woken without a reservation, so that any number of dead waiters costs the others only one reservation. Live waiters keep their place when
-- they join again. Therefore it also returns the waiters that another client has marked, even if the key is held by now: no release
-- wakes them before they join again. A locked row is skipped: another client is marking or removing it, or its
-- waiter is joining again, being woken or leaving.
WITH moment AS MATERIALIZED (
  SELECT {now} AS now
), mine AS MATERIALIZED (
  SELECT key, waiter, turn_until_ms FROM {waiters} WHERE waiter = ANY($1::text[])
), free AS MATERIALIZED (
  -- Only the oldest waiters that are alive or were woken are read: those with a turn are among them, and there may be thousands.
  SELECT awaited.key FROM (SELECT DISTINCT key FROM mine) AS awaited, moment, LATERAL (
    SELECT bool_or(turn_until_ms <= now) AS lapsed, bool_or(turn_until_ms > now AND turn_until_ms <= now + 300) AS reserved
    FROM (SELECT turn_until_ms FROM {waiters} WHERE key >= awaited.key AND key <= awaited.key
      AND (turn_until_ms IS NOT NULL OR seen_at_ms > now - 30000) ORDER BY key, position LIMIT 100) AS front
  ) AS turns
  WHERE turns.lapsed AND NOT coalesce(turns.reserved, false)
    AND NOT EXISTS (SELECT FROM {locks} AS locks WHERE locks.key = awaited.key AND locks.expires_at_ms + 0 > now - 1000)
), marked AS (
  UPDATE {waiters} SET turn_until_ms = 0 WHERE position = ANY(ARRAY(
    SELECT position FROM {waiters} WHERE key IN (SELECT key FROM free) AND turn_until_ms IS NULL FOR UPDATE SKIP LOCKED))
)
SELECT waiter FROM mine WHERE turn_until_ms = 0 OR key IN (SELECT key FROM free)

-- name: clear_queue
-- $1: key, $2: the waiter that joins. Removes other waiters whose turn has lapsed, and waiters that were not seen for 30 s. turn_until_ms =
-- 0 marks a waiter that was woken without a reservation and may still come.
DELETE FROM {waiters} USING (SELECT {now} AS now) AS moment
WHERE key = $1 AND waiter <> $2
  AND ((turn_until_ms > 0 AND turn_until_ms <= now) OR turn_until_ms > now + 300 OR seen_at_ms < now - 30000)

-- name: turn
turn AS MATERIALIZED (
  -- A reservation lasts at most 300 ms. One that ends later was made before the clock was set back.
  SELECT turn_until_ms FROM {waiters}, moment
  WHERE key = $1 AND waiter <> $8 AND turn_until_ms > moment.now AND turn_until_ms <= moment.now + 300 LIMIT 1
),

-- name: no_turn
turn AS (SELECT NULL::bigint AS turn_until_ms WHERE false),

-- name: leave_with_lock
, left_queue AS (
  -- Also removes waiters of this key whose turn has lapsed.
  DELETE FROM {waiters} USING moment WHERE (waiter = $8 OR (key = $1 AND turn_until_ms > 0 AND turn_until_ms <= moment.now))
    AND (EXISTS (SELECT FROM taken) OR EXISTS (SELECT FROM live WHERE lock_id COLLATE "C" = $2))
)

-- name: pass_turn
, next_waiter AS (
  -- Gives the turn to the oldest waiter that was seen in the last 30 s. A range of one key instead of equality, because the server would
  -- otherwise read the whole table in the order of position.
  UPDATE {waiters} AS waiters SET turn_until_ms = moment.now + {reservation} FROM moment
  WHERE waiters.position = (
    SELECT position FROM {waiters}
    WHERE key >= (SELECT key FROM gone) AND key <= (SELECT key FROM gone)
      AND turn_until_ms IS NULL AND seen_at_ms > moment.now - 30000
    ORDER BY key, position LIMIT 1)
  RETURNING waiters.waiter
)

-- name: notify_next_waiter
, (SELECT count(*) FROM (SELECT pg_notify('syncguard_wake', waiter) FROM next_waiter OFFSET 0) AS notified)
