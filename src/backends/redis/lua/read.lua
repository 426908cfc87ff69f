-- KEYS: lock, and more
-- Reads a lock and the time. Ends the script with NO if there is no live lock, or FOREIGN.
local stored = redis.call('GET', KEYS[1])
if not stored then return NO end
-- include decode
if not lock then return FOREIGN end
-- include now
if lock.expiresAtMs <= live_after then return NO end
