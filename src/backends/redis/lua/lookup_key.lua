-- KEYS: lock. Returns {YES, key, lock id, expires at, acquired at, fence, holder}, NO, or FOREIGN.
-- include read
-- include describe
return describe(lock)
