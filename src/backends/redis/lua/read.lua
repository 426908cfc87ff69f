-- KEYS: lock, and more
-- Reads a lock and the time. Ends the script with 0 if there is no live lock, or -3 if the value is not a lock.
local stored = redis.call('GET', KEYS[1])
if not stored then return 0 end
-- include decode
if not lock then return -3 end
-- include now
if lock.expiresAtMs <= live_after then return 0 end
