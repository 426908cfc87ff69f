-- KEYS: index; ARGV: lock id, and more
-- Finds the live lock of an id, its name and the time. Ends the script with the reason if there is none: 0 mismatch, -1 not found,
-- -2 expired, -3 not a lock.
local name = redis.call('GET', KEYS[1])
local stored = name and redis.call('GET', name)
if not stored then return -1 end
-- include decode
if not lock then return -3 end
if lock.lockId ~= ARGV[1] then return 0 end
-- include now
if lock.expiresAtMs <= live_after then return -2 end
