-- Who waits for a key that nobody holds. One look for all keys: a client may wait for thousands.
SELECT key, waiter, turn_until_ms FROM syncguard_locks_waiters AS waiting
WHERE NOT EXISTS (SELECT 1 FROM syncguard_locks AS lock WHERE lock.key = waiting.key AND lock.expires_at_ms > ?1)
ORDER BY key, position
