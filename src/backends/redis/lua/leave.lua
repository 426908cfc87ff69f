-- KEYS: queue, turn, lock; ARGV: waiter, the common beginning of channel names. If the waiter had its turn, the turn is
-- passed on, unless the key is locked: then the release of that lock gives the next turn.
local queue, turn_name, wake_root = KEYS[1], KEYS[2], ARGV[2]
local removed = redis.pcall('ZREM', queue, ARGV[1])
-- Not a queue: see join.lua.
if type(removed) == 'table' then return removed.err:find('WRONGTYPE', 1, true) and YES or removed end
local turn_text = removed == 0 and redis.pcall('GET', turn_name)
if type(turn_text) ~= 'string' or turn_text:sub(1, 23) ~= ARGV[1] .. ' ' then return YES end
redis.call('DEL', turn_name)
-- include now
local stored = redis.pcall('GET', KEYS[3])
if type(stored) == 'table' then return YES end
if stored then
  -- include decode
  if not lock or lock.expiresAtMs > live_after then return YES end
end
-- include pass
return YES
