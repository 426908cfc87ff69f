-- Wakes the oldest live waiter and reserves the key for it. Uses the names queue, turn and wake_root. Turns decide order only, never
-- safety. A failure here only costs time and must not turn the completed release into an error, so all commands run by pcall.
-- Values that are not ours are left alone: with the prefixes X, X-turn and X-queue in one database, they may be locks of other applications.
local oldest = redis.pcall('ZPOPMIN', queue)
while oldest[1] do
  -- include reservation
  -- include place
  local waiter, place = oldest[1], tonumber(oldest[2])
  if not is_lock_id(waiter) then
    redis.pcall('ZADD', queue, oldest[2], waiter)
    break
  end
  local reserved = redis.pcall('SET', turn, waiter, 'PX', reservation_at(place), 'NX')
  if not reserved and is_lock_id(redis.pcall('GET', turn)) then
    reserved = redis.pcall('SET', turn, waiter, 'PX', reservation_at(place))
  end
  -- A hash, so that subscribing reveals no id that can release a lock. Older versions use the id itself.
  local channel = wake_root .. (place % 1 == 0 and waiter or redis.sha1hex(waiter))
  if redis.pcall('PUBLISH', channel, '') ~= 0 then break end
  -- No subscriber: the waiter is dead.
  if reserved and reserved.ok then redis.pcall('DEL', turn) end
  oldest = redis.pcall('ZPOPMIN', queue)
end
