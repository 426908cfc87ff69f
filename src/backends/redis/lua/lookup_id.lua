-- KEYS: index; ARGV: lock id. Returns {1, key, lock id, expires at, acquired at, fence, holder}, or the reason, see owned.lua.
-- include owned
-- include describe
return describe(lock)
