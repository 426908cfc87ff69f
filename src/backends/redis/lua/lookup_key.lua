-- KEYS: lock. Returns {1, key, lock id, expires at, acquired at, fence, holder}, {0}, or {-3} if the value is not a lock.
local lock = read_lock(KEYS[1])
if lock == nil then return {0} end
if not lock then return {-3} end
if not is_live(lock, now_in_ms()) then return {0} end
return describe(lock)
