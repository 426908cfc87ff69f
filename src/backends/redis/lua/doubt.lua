-- Another waiter did not use its turn. Those behind it may be dead or frozen, too, and each would cost a reservation, so the entries are
-- removed. A live waiter is back at its place when it looks. Uses the name queue.
local oldest = redis.pcall('ZRANGE', queue, 0, 0)[1]
if oldest and #oldest == 22 and not oldest:find('[^%w_-]') then
  redis.pcall('ZREMRANGEBYRANK', queue, 0, MAX_DOUBTED - 1)
end
