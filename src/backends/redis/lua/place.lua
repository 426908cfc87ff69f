-- Where a waiter stands in the queue. After reservation.lua.

-- Whether this is the name of a waiter, as a member of a queue or the value of a turn.
local function is_lock_id(value)
  return type(value) == 'string' and #value == 22 and not value:find('[^%w_-]')
end

local function clamp_reservation(length)
  return math.max(min_reservation, math.min(max_reservation, length))
end

-- The place of a waiter that arrives now.
local function place_at(microseconds, length)
  return math.floor(microseconds / 8) * 8 + math.ceil(clamp_reservation(length) / step) - 1 + 0.5
end

-- The length of the reservation that a place carries.
local function reservation_at(place)
  if place % 1 == 0 then return min_reservation end
  return math.min(max_reservation, (math.floor(place % 8) + 1) * step)
end
