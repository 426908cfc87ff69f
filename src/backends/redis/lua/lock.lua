-- What the scripts know about locks. Put before each of them.

-- How far clocks may disagree: core/liveness.hpp.
local tolerance = 1000

local function now_in_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function is_live(lock, now)
  return lock.expiresAtMs > now - tolerance
end

-- False where something else than a lock is stored.
local function decode_lock(stored)
  local is_json, lock = pcall(cjson.decode, stored)
  return is_json and type(lock) == 'table' and type(lock.lockId) == 'string'
    and type(lock.expiresAtMs) == 'number' and lock
end

-- Nil where there is none.
local function read_lock(name)
  local stored = redis.call('GET', name)
  if not stored then return nil end
  return decode_lock(stored)
end

-- The live lock of an id, its name, and now; or nil and why not: 0 mismatch, -1 not found, -2 expired, -3 no lock.
local function find_owned(index, id)
  local name = redis.call('GET', index)
  if not name then return nil, -1 end
  local lock = read_lock(name)
  if lock == nil then return nil, -1 end
  if not lock then return nil, -3 end
  if lock.lockId ~= id then return nil, 0 end
  local now = now_in_ms()
  if not is_live(lock, now) then return nil, -2 end
  return lock, name, now
end
