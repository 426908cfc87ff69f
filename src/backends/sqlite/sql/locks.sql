-- Locks and their fence counters. Each statement becomes a constant with its name: see cmake/SyncGuardEmbed.cmake.

-- name: find_by_key
SELECT user_key, lock_id, expires_at_ms, acquired_at_ms, fence, coalesce(renewed_at_ms, acquired_at_ms), holder
FROM syncguard_locks WHERE key = ?1 LIMIT 1

-- name: find_by_id
SELECT user_key, lock_id, expires_at_ms, acquired_at_ms, fence, coalesce(renewed_at_ms, acquired_at_ms), holder
FROM syncguard_locks WHERE lock_id = ?1 LIMIT 1

-- name: find_counter
SELECT fence FROM syncguard_fence_counters WHERE fence_key = ?1

-- name: put_counter
INSERT INTO syncguard_fence_counters (fence_key, fence, key_debug) VALUES (?1, ?2, ?3)
ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence

-- name: find_highest_counter
SELECT max(fence) FROM syncguard_fence_counters

-- name: put_lock
INSERT OR REPLACE INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, holder)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, nullif(?7, ''))

-- name: set_expiry
UPDATE syncguard_locks SET expires_at_ms = ?2, renewed_at_ms = ?3 WHERE lock_id = ?1

-- name: remove_lock
DELETE FROM syncguard_locks WHERE lock_id = ?1

-- name: count_expired
SELECT count(*) FROM syncguard_locks WHERE expires_at_ms < ?1

-- name: remove_expired
DELETE FROM syncguard_locks WHERE key IN (
  SELECT key FROM syncguard_locks WHERE expires_at_ms < ?1 ORDER BY expires_at_ms LIMIT ?2)
RETURNING key

-- name: list_locks
-- ?1: where to begin, ?2: the key before that. In the order of keys.
SELECT user_key, lock_id, expires_at_ms, acquired_at_ms, fence, coalesce(renewed_at_ms, acquired_at_ms), holder, key
FROM syncguard_locks WHERE key >= ?1 AND key <> ?2 ORDER BY key LIMIT ?3

-- name: count_unsafe
-- Counts objects that would run foreign code: triggers, and views or virtual tables in place of our tables. SQLite ignores case in names.
SELECT count(*) FROM sqlite_schema
WHERE (lower(name) IN ('syncguard_locks', 'syncguard_fence_counters', 'syncguard_locks_waiters')
       AND (type <> 'table' OR rootpage = 0))
   OR (type = 'trigger' AND lower(tbl_name) IN ('syncguard_locks', 'syncguard_fence_counters', 'syncguard_locks_waiters'))
