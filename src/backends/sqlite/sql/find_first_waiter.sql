-- The one who asks counts also if its turn came and went before it was told.
SELECT waiter FROM syncguard_locks_waiters
WHERE key = ?1 AND (turn_until_ms IS NULL OR waiter = ?2) ORDER BY position LIMIT 1
