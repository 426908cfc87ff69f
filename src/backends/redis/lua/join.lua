-- KEYS: queue; ARGV: waiter, its reservation in ms. A waiter that is already in the queue keeps its place. The queue expires
-- one hour after the last waiter joined. Returns the waiter's place.
-- include reservation
-- include place
local time = redis.call('TIME')
local place = redis.call('ZADD', KEYS[1], 'NX', 'INCR', place_at(time[1] * 1000000 + time[2], tonumber(ARGV[2])), ARGV[1])
redis.call('PEXPIRE', KEYS[1], 3600000)
return place or redis.call('ZADD', KEYS[1], 'XX', 'INCR', 0, ARGV[1])
