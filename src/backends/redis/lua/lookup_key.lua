-- KEYS: lock. Returns {1, key, lock id, expires at, acquired at, fence, holder}, 0, or -3 if the value is not a lock.
-- include read
-- include describe
return describe(lock)
