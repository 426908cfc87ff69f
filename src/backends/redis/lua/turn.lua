-- Tells the oldest waiter that is alive that it may try, and keeps the key for it for a moment: core/reservation.hpp.
-- Whatever fails here costs time only, so that it must not turn what was done before into an error: everything by pcall.
local function pass_turn(queue, turn, wake_root)
  local oldest = redis.pcall('ZPOPMIN', queue)
  while oldest[1] do
    redis.pcall('SET', turn, oldest[1], 'PX', 50)
    if redis.pcall('PUBLISH', wake_root .. oldest[1], '') ~= 0 then return end
    -- Nobody listens: it is dead.
    redis.pcall('DEL', turn)
    oldest = redis.pcall('ZPOPMIN', queue)
  end
end
