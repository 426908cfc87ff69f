-- KEYS: index; ARGV: lock id, and more
-- Finds the live lock of an id, its name and the time. Ends the script with the reason if there is none: NO (another
-- lock), NOT_FOUND, EXPIRED or FOREIGN.
local name = redis.call('GET', KEYS[1])
if not name then return NOT_FOUND end
-- While a cluster moves the slot, the node that receives it has some of the keys. It reports a single key that has not arrived as missing.
-- A request for several keys fails unless all have arrived. MGET returns nothing for a value of another type, but GET fails.
local stored = redis.call('MGET', KEYS[1], name)[2] or redis.call('GET', name)
if not stored then return NOT_FOUND end
-- include decode
if not lock then return FOREIGN end
if lock.lockId ~= ARGV[1] then return NO end
-- include now
if lock.expiresAtMs <= live_after then return EXPIRED end
