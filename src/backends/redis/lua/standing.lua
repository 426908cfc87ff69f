-- Where a waiter stands in the queue, and how many times as long the pause between its looks is in a very long queue. Uses the names queue
-- and place. The right to count is optional.
local oldest_place = tonumber(redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')[2])
local is_first = (not oldest_place or oldest_place >= tonumber(place)) and 1 or 0
local count = redis.pcall('ZCARD', queue)
local crowd = type(count) == 'number' and math.max(1, math.ceil(count / 1024)) or 1
