-- Functions for every script that reads a lock. scripts.cpp puts this and other parts (owned, describe, reservation, place, turn)
-- before the scripts that use them, and before no others: a function costs 0.1 us per run of a script, even if it is not called.

-- The tolerance of liveness: syncguard/liveness.hpp.
local tolerance = 1000

-- Milliseconds, from a reply to TIME (seconds and microseconds).
local function in_ms(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function is_live(lock, now)
  return lock.expiresAtMs > now - tolerance
end

-- Far more than a lock needs, even with a key of 512 bytes that are all escaped.
local max_document = 16384

-- The latest time that a lock can have, about thirty thousand years from now. Comparisons with it are false for NaN.
local max_time = 1e15

-- False if the value is not a lock.
local function decode_lock(stored)
  if #stored > max_document then return false end
  local is_json, lock = pcall(cjson.decode, stored)
  return is_json and type(lock) == 'table' and type(lock.lockId) == 'string'
    and type(lock.expiresAtMs) == 'number' and math.abs(lock.expiresAtMs) <= max_time and lock
end
