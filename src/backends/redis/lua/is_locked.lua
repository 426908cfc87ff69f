-- KEYS: lock. Returns 1 or 0, or -3 if the value is not a lock.
-- include read
return 1
