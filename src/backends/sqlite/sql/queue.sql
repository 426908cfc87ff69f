-- The queue of waiters (core/key_rules.hpp). Each statement becomes a constant with its name: see cmake/SyncGuardEmbed.cmake.

-- name: has_waiters
SELECT 1 FROM syncguard_locks_waiters WHERE key = ?1 LIMIT 1

-- name: count_waiters
-- Those in the queue that were seen between ?2 and ?3.
SELECT count(*) FROM syncguard_locks_waiters WHERE key = ?1 AND turn_until_ms IS NULL AND seen_at_ms BETWEEN ?2 AND ?3

-- name: find_turns
SELECT waiter, place, seen_at_ms, turn_until_ms FROM syncguard_locks_waiters WHERE key = ?1 AND turn_until_ms IS NOT NULL

-- name: find_front
-- The oldest ?2 entries.
SELECT waiter, place, seen_at_ms FROM syncguard_locks_waiters
WHERE key = ?1 AND turn_until_ms IS NULL ORDER BY place LIMIT ?2

-- name: find_entry
SELECT waiter, place, seen_at_ms FROM syncguard_locks_waiters WHERE waiter = ?1 AND turn_until_ms IS NULL

-- name: find_last_place
SELECT max(place) FROM syncguard_locks_waiters WHERE key = ?1

-- name: find_waiters_with_turn
-- Of all keys.
SELECT waiter FROM syncguard_locks_waiters WHERE turn_until_ms IS NOT NULL

-- name: put_entry
INSERT INTO syncguard_locks_waiters (key, waiter, place, seen_at_ms) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (waiter) DO UPDATE SET place = excluded.place, seen_at_ms = excluded.seen_at_ms, turn_until_ms = NULL

-- name: put_turn
INSERT INTO syncguard_locks_waiters (key, waiter, place, seen_at_ms, turn_until_ms) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (waiter) DO UPDATE SET turn_until_ms = excluded.turn_until_ms

-- name: clear_turns
DELETE FROM syncguard_locks_waiters WHERE key = ?1 AND turn_until_ms IS NOT NULL

-- name: remove_waiter
DELETE FROM syncguard_locks_waiters WHERE waiter = ?1

-- name: doubt
-- Removes the oldest ?3 entries, except that of ?2.
DELETE FROM syncguard_locks_waiters WHERE waiter IN (
  SELECT waiter FROM syncguard_locks_waiters
  WHERE key = ?1 AND turn_until_ms IS NULL AND waiter <> ?2 ORDER BY place LIMIT ?3)

-- name: purge_waiters
-- Removes dead waiters of any key: keys without live waiters are never looked at otherwise. The dead are among those that joined first.
DELETE FROM syncguard_locks_waiters
WHERE rowid IN (SELECT rowid FROM syncguard_locks_waiters ORDER BY rowid LIMIT ?3) AND seen_at_ms NOT BETWEEN ?1 AND ?2
