UPDATE syncguard_locks_waiters SET turn_until_ms = ?2 WHERE position =
  (SELECT position FROM syncguard_locks_waiters WHERE key = ?1 AND turn_until_ms IS NULL ORDER BY position LIMIT 1)
RETURNING waiter
