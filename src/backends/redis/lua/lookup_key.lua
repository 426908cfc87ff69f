-- KEYS: lock. Returns {1, key, lock id, expires at, acquired at, fence}, {0}, or {-3} for no lock.
local lock = read_lock(KEYS[1])
if lock == nil then return {0} end
if not lock then return {-3} end
if not is_live(lock, now_in_ms()) then return {0} end
return {1, lock.key, lock.lockId, lock.expiresAtMs, lock.acquiredAtMs, lock.fence}
