SELECT waiter, turn_until_ms FROM syncguard_locks_waiters WHERE key = ?1 AND turn_until_ms > ?2 LIMIT 1
