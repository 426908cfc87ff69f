-- KEYS: lock. Returns 1 or 0, or -3 if the value is not a lock.
local lock = read_lock(KEYS[1])
if lock == nil then return 0 end
if not lock then return -3 end
return is_live(lock, now_in_ms()) and 1 or 0
