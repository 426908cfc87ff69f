-- KEYS: index; ARGV: lock id. Returns {1, key, lock id, expires at, acquired at, fence, holder}, or {reason}, see find_owned.
local lock, name = find_owned(KEYS[1], ARGV[1])
if not lock then return {name} end
return describe(lock)
