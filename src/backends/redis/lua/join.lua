-- KEYS: queue, turn, lock; ARGV: waiter, its reservation in ms, and its place, or nothing if it has none
-- Returns {time until the key is free, or -1 to try now; place; 1 if it is first; how many times as long to pause between looks}, or
-- nothing if the value is not a queue: with the prefixes X and X-queue in one database, it may be another application's lock. The queue
-- expires one hour after the last waiter joined.
local queue, id, queue_ttl = KEYS[1], ARGV[1], 3600000
local left = redis.call('PTTL', queue)
if left == -1 or left > queue_ttl then return false end
local values = redis.call('MGET', KEYS[2], KEYS[3])
local turn_text, stored = values[1], values[2]
-- include now
-- include turn
local free_in = -1
if stored then
  -- include decode
  -- A value that is not a lock: the attempt reports it.
  if lock and lock.expiresAtMs > live_after and lock.lockId ~= id then free_in = lock.expiresAtMs - live_after end
  stored = lock and lock.expiresAtMs > live_after
end
local has_turn = turn_waiter == id
if not stored and turn_is_pending then
  if has_turn then return {-1, tonumber(turn_place), 1, 1} end
  free_in = turn_until - now
end

local place = redis.pcall('ZADD', queue, 'XX', 'INCR', 0, id)
if type(place) == 'table' then return not place.err:find('WRONGTYPE', 1, true) and place end
if not place then
  if has_turn and turn_is_pending then
    place = turn_place
  elseif ARGV[3] ~= '' then
    place = ARGV[3]
  else
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
    if turn_waiter then last = math.max(last, turn_place) end
    local steps = math.ceil(math.max(MIN_RESERVATION, math.min(MAX_RESERVATION, ARGV[2])) / MIN_RESERVATION)
    place = string.format('%.0f', math.max(now, math.floor(last / 8) + 1) * 8 + steps)
  end
  redis.call('ZADD', queue, place, id)
  if has_turn then redis.call('DEL', KEYS[2]) end
end
redis.call('PEXPIRE', queue, queue_ttl)
-- include standing
return {free_in, tonumber(place), is_first, crowd}
