-- Functions for reading locks. Embedded before each script that uses them.

-- The tolerance of liveness: syncguard/liveness.hpp.
local tolerance = 1000

-- Milliseconds, from a reply to TIME (seconds and microseconds).
local function in_ms(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function now_in_ms()
  return in_ms(redis.call('TIME'))
end

local function is_live(lock, now)
  return lock.expiresAtMs > now - tolerance
end

-- Far more than a lock needs, even with a key of 512 bytes that are all escaped.
local max_document = 16384

-- False if the value is not a lock.
local function decode_lock(stored)
  if #stored > max_document then return false end
  local is_json, lock = pcall(cjson.decode, stored)
  return is_json and type(lock) == 'table' and type(lock.lockId) == 'string'
    and type(lock.expiresAtMs) == 'number' and lock
end

-- Nil if there is none.
local function read_lock(name)
  local stored = redis.call('GET', name)
  if not stored then return nil end
  return decode_lock(stored)
end

-- The reply of lookups. Only the fields of a lock: clients close a connection on which a reply is too long or too deep.
local function describe(lock)
  if type(lock.key) ~= 'string' or type(lock.acquiredAtMs) ~= 'number' or type(lock.fence) ~= 'string' then return {-3} end
  return {1, lock.key, lock.lockId, lock.expiresAtMs, lock.acquiredAtMs, lock.fence,
    type(lock.holder) == 'string' and lock.holder or ''}
end

-- How many wait in a queue; -1 if there is no queue, or if this user may not count.
local function count_waiters(queue)
  local count = queue and redis.pcall('ZCARD', queue)
  return type(count) == 'number' and count or -1
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
