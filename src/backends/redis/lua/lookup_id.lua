-- KEYS: index; ARGV: lock id. Returns {1, key, lock id, expires at, acquired at, fence}, or {why not}, as find_owned says.
local lock, name = find_owned(KEYS[1], ARGV[1])
if not lock then return {name} end
return {1, lock.key, lock.lockId, lock.expiresAtMs, lock.acquiredAtMs, lock.fence}
