-- The turns of waiters. They decide order only, never safety.

-- How long a released key is reserved for its oldest waiter, in ms: core/reservation.hpp.
local min_reservation, max_reservation = 50, 300

local function clamp_reservation(length)
  return math.max(min_reservation, math.min(max_reservation, length))
end

-- A place in the queue is the entry's score: the time of arrival in microseconds, rounded down to a multiple of 8. The
-- remainder is the requested reservation, in steps of 50 ms, and 0.5 is added to mark the format: entries of older versions
-- lack the 0.5.
local step = min_reservation

local function place_at(microseconds, length)
  return math.floor(microseconds / 8) * 8 + math.ceil(clamp_reservation(length) / step) - 1 + 0.5
end

local function is_of_older_version(place)
  return place % 1 == 0
end

local function reservation_at(place)
  if is_of_older_version(place) then return min_reservation end
  return clamp_reservation((math.floor(place % 8) + 1) * step)
end

-- The name of a waiter's channel contains a hash of its id, so that subscribing reveals no id that can release a lock. Older
-- versions use the id itself.
local function wake_channel(wake_root, waiter, place)
  return wake_root .. (is_of_older_version(place) and waiter or redis.sha1hex(waiter))
end

-- Wakes the oldest live waiter and reserves the key for it. A failure here only costs time and must not turn the completed
-- release into an error, so all commands run by pcall.
local function pass_turn(queue, turn, wake_root)
  local oldest = redis.pcall('ZPOPMIN', queue)
  while oldest[1] do
    local place = tonumber(oldest[2])
    redis.pcall('SET', turn, oldest[1], 'PX', reservation_at(place))
    if redis.pcall('PUBLISH', wake_channel(wake_root, oldest[1], place), '') ~= 0 then return end
    -- No subscriber: the waiter is dead.
    redis.pcall('DEL', turn)
    oldest = redis.pcall('ZPOPMIN', queue)
  end
end
