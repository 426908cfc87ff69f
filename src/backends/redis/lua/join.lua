-- KEYS: queue; ARGV: waiter. In the order of arrival; a waiter that is there keeps its place. What nobody joins any more
-- goes after an hour.
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], 'NX', time[1] * 1000000 + time[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], 3600000)
return 1
