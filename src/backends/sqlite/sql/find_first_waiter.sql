SELECT waiter FROM syncguard_locks_waiters WHERE key = ?1 AND turn_until_ms IS NULL ORDER BY position LIMIT 1
