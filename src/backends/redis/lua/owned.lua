-- Reads one lock, by its name or its id.

local function now_in_ms()
  return in_ms(redis.call('TIME'))
end

-- Nil if there is none.
local function read_lock(name)
  local stored = redis.call('GET', name)
  if not stored then return nil end
  return decode_lock(stored)
end

-- Returns the live lock of an id, its name, and the time; or nil and the reason: 0 mismatch, -1 not found, -2 expired, -3 not a lock.
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
