-- KEYS: index; ARGV: lock id. Returns {YES, key, lock id, expires at, acquired at, fence, holder}, or the reason, see owned.lua.
-- include owned
-- include describe
return describe(lock)
