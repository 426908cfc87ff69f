-- Where a waiter stands in the queue. After reservation.lua.

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
