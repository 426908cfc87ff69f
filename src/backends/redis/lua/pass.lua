-- Gives the turn to the oldest waiter that is alive, and wakes it. Uses the names queue, turn_name and wake_root. A failure here only costs
-- time and must not turn the completed release into an error, so all commands run by pcall. Values that are not ours are left alone: with
-- the prefixes X, X-turn and X-queue in one database, they may be locks of other applications.
local oldest = redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')
if oldest[1] then
  local turn_text = redis.pcall('GET', turn_name)
  if type(turn_text) ~= 'string' then turn_text = nil end
  -- include turn
  for i = 1, turn_is_pending and 0 or MAX_FRONT do
    local waiter, place = oldest[1], tonumber(oldest[2])
    if not waiter or #waiter ~= 22 or waiter:find('[^%w_-]') then break end
    redis.pcall('ZREM', queue, waiter)
    -- A hash, so that subscribing reveals no id that can release a lock. Without a subscriber, the waiter is dead.
    if redis.pcall('PUBLISH', wake_root .. redis.sha1hex(waiter), '') ~= 0 then
      -- include reserve
      break
    end
    oldest = redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')
  end
end
