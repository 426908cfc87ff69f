-- A turn that is further away than it can have been given is one from before the clock was set back.
SELECT waiter, turn_until_ms FROM syncguard_locks_waiters
WHERE key = ?1 AND turn_until_ms > ?2 AND turn_until_ms <= ?3 LIMIT 1
