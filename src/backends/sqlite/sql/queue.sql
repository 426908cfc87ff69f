-- The queue of waiters. Each statement becomes a constant with its name: see cmake/SyncGuardEmbed.cmake.

-- name: join
-- A waiter that is already in the queue keeps its place. If the key is locked again, its turn was lost to another waiter and is reset;
-- otherwise no release would wake it again.
INSERT INTO syncguard_locks_waiters (key, waiter, seen_at_ms) VALUES (?1, ?2, ?3)
ON CONFLICT (waiter) DO UPDATE SET seen_at_ms = excluded.seen_at_ms, turn_until_ms =
  CASE WHEN EXISTS (SELECT 1 FROM syncguard_locks WHERE key = ?1 AND expires_at_ms > ?4) THEN NULL ELSE turn_until_ms END

-- name: find_waiter
SELECT turn_until_ms, seen_at_ms FROM syncguard_locks_waiters WHERE waiter = ?1

-- name: has_waiters
SELECT 1 FROM syncguard_locks_waiters WHERE key = ?1 LIMIT 1

-- name: count_waiters
SELECT count(*) FROM syncguard_locks_waiters WHERE key = ?1

-- name: find_turn
-- The waiter's own turn, or the turn of another waiter. A turn that ends later than ?3 was given before the clock was set back.
SELECT waiter, turn_until_ms FROM syncguard_locks_waiters
WHERE key = ?1 AND turn_until_ms > ?2 AND turn_until_ms <= ?3
ORDER BY waiter = ?4 DESC LIMIT 1

-- name: find_free_queue
-- Of a key that is not held: the waiters with a turn, and the first one without.
SELECT waiter, turn_until_ms FROM (
  SELECT position, waiter, turn_until_ms FROM syncguard_locks_waiters WHERE key = ?1 AND turn_until_ms IS NOT NULL
  UNION ALL SELECT * FROM (
    SELECT position, waiter, turn_until_ms FROM syncguard_locks_waiters
    WHERE key = ?1 AND turn_until_ms IS NULL ORDER BY position LIMIT 1))
WHERE NOT EXISTS (SELECT 1 FROM syncguard_locks WHERE key = ?1 AND expires_at_ms > ?2)
ORDER BY position

-- name: find_turns
-- All keys.
SELECT waiter FROM syncguard_locks_waiters WHERE turn_until_ms IS NOT NULL

-- name: give_turn
UPDATE syncguard_locks_waiters SET turn_until_ms = ?2 WHERE position IN
  (SELECT position FROM syncguard_locks_waiters WHERE key = ?1 AND turn_until_ms IS NULL ORDER BY position LIMIT ?3)
RETURNING waiter

-- name: remove_waiter
DELETE FROM syncguard_locks_waiters WHERE waiter = ?1

-- name: remove_after_turn
-- Removes waiters that were woken and did not take their turn.
DELETE FROM syncguard_locks_waiters
WHERE key = ?1 AND turn_until_ms IS NOT NULL AND (turn_until_ms <= ?2 OR turn_until_ms > ?3)
RETURNING position

-- name: remove_waiter_after_turn
DELETE FROM syncguard_locks_waiters WHERE waiter = ?1 AND (turn_until_ms <= ?2 OR turn_until_ms > ?3)

-- name: set_missing_seen_at
-- Older versions do not write seen_at_ms.
UPDATE syncguard_locks_waiters SET seen_at_ms = ?1
WHERE position IN (SELECT position FROM syncguard_locks_waiters ORDER BY position LIMIT 256) AND seen_at_ms IS NULL

-- name: purge_waiters
-- Removes dead waiters of any key. They are among the oldest.
DELETE FROM syncguard_locks_waiters
WHERE position IN (SELECT position FROM syncguard_locks_waiters ORDER BY position LIMIT 256)
  AND seen_at_ms NOT BETWEEN ?1 AND ?2
