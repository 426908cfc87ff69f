-- KEYS: queue, turn, lock; ARGV: waiter, the common beginning of channel names. If the waiter had its turn, the turn is
-- passed on, unless the key is locked: then the release of that lock gives the next turn.
local queue, turn, wake_root = KEYS[1], KEYS[2], ARGV[2]
local removed = redis.pcall('ZREM', queue, ARGV[1])
-- Not a queue: see join.lua.
if type(removed) == 'table' then return removed.err:find('WRONGTYPE', 1, true) and 1 or removed end
if removed ~= 0 or redis.pcall('GET', turn) ~= ARGV[1] then return 1 end
redis.call('DEL', turn)
local stored = redis.call('GET', KEYS[3])
if stored then
  -- include decode
  -- include now
  if not lock or lock.expiresAtMs > live_after then return 1 end
end
-- include pass_turn
return 1
