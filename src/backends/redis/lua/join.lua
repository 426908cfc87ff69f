-- KEYS: queue; ARGV: waiter, its reservation in ms. A waiter that is already in the queue keeps its place. The queue expires
-- one hour after the last waiter joined. Returns the waiter's place, or nothing if the value is not a queue: with the prefixes X and
-- X-queue in one database, it may be another application's lock.
-- include reservation
-- include place
local left, queue_ttl = redis.call('PTTL', KEYS[1]), 3600000
if left == -1 or left > queue_ttl then return false end
local time = redis.call('TIME')
local place = redis.pcall('ZADD', KEYS[1], 'NX', 'INCR', place_at(time[1] * 1000000 + time[2], tonumber(ARGV[2])), ARGV[1])
if type(place) == 'table' then return not place.err:find('WRONGTYPE', 1, true) and place end
redis.call('PEXPIRE', KEYS[1], queue_ttl)
return place or redis.call('ZADD', KEYS[1], 'XX', 'INCR', 0, ARGV[1])
