-- KEYS: index; ARGV: lock id, and more
-- Finds the live lock of an id, its name and the time. Ends the script with the reason if there is none: 0 mismatch, -1 not found,
-- -2 expired, -3 not a lock.
local name = redis.call('GET', KEYS[1])
if not name then return -1 end
-- While a cluster moves the slot, the node that receives it has some of the keys. It reports a single key that has not arrived as missing.
-- A request for several keys fails unless all have arrived. MGET returns nothing for a value of another type, but GET fails.
local stored = redis.call('MGET', KEYS[1], name)[2] or redis.call('GET', name)
if not stored then return -1 end
-- include decode
if not lock then return -3 end
if lock.lockId ~= ARGV[1] then return 0 end
-- include now
if lock.expiresAtMs <= live_after then return -2 end
