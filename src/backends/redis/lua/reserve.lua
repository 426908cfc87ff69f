-- Reserves the key for a waiter. Uses the names turn_name, turn_waiter, waiter and place. The turn outlasts its end for a while, so that a
-- turn that was not used differs from no turn. A place is 8 * time of joining in ms + the requested reservation in steps. A value that is
-- not a turn is not overwritten, whatever its type is.
local ends_at = now + math.max(MIN_RESERVATION, math.min(MAX_RESERVATION, place % 8 * MIN_RESERVATION))
local taken_turn = string.format('%s %.0f %.0f', waiter, place, ends_at)
if turn_waiter then
  redis.pcall('SET', turn_name, taken_turn, 'PX', ends_at - now + 60000)
else
  redis.pcall('SET', turn_name, taken_turn, 'PX', ends_at - now + 60000, 'NX')
end
