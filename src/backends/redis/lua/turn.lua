-- The turn of a key is stored as `waiter place until`. A value of another form is not a turn: with the prefixes X and X-turn in one
-- database, it may be another application's lock. Reads turn_text, which may be missing, and needs the time.
local turn_waiter, turn_place, turn_until
if turn_text then turn_waiter, turn_place, turn_until = turn_text:match('^([%w_-]+) (%d+) (%d+)$') end
if turn_waiter and #turn_waiter ~= 22 then turn_waiter = nil end
turn_until = turn_waiter and tonumber(turn_until)
local turn_is_pending = turn_waiter and turn_until > now and turn_until <= now + MAX_RESERVATION
