-- The given one, and those whose turn is over: they were told and did not come.
DELETE FROM syncguard_locks_waiters
WHERE key = ?1 AND (waiter = ?2 OR turn_until_ms <= ?3 OR turn_until_ms > ?4)
