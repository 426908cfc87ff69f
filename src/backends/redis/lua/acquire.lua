-- KEYS: lock, index, fence counter, turn, queue
-- ARGV: lock id, ttl, ttl + tolerance, the key as a JSON string, the highest fence, '1' if it waits in the queue
-- Returns {1, fence, expires at, remaining}, {0, free in}, {-3} for no lock, {-4} for a counter at its end.
local lock = read_lock(KEYS[1])
if lock == false then return {-3} end
local now = now_in_ms()
if lock and is_live(lock, now) then
  if lock.lockId ~= ARGV[1] then return {0, lock.expiresAtMs + 1000 - now} end
  if ARGV[6] == '1' then redis.pcall('ZREM', KEYS[5], ARGV[1]) end
  return {1, tonumber(lock.fence), lock.expiresAtMs, lock.expiresAtMs - now}
end

local stored = redis.call('MGET', KEYS[3], KEYS[4])
local turn = stored[2]
if turn and turn ~= ARGV[1] then return {0, math.max(redis.call('PTTL', KEYS[4]), 0)} end
local counter = tonumber(stored[1] or 0) or 0
if counter < 0 or counter >= tonumber(ARGV[5]) then return {-4} end

-- A script is not rolled back. INCR comes first: it is the only write that what is stored can make fail.
local fence = redis.call('INCR', KEYS[3])
local expires_at = now + ARGV[2]
redis.call('SET', KEYS[2], KEYS[1], 'PX', ARGV[3])
redis.call('SET', KEYS[1],
  string.format('{"key":%s,"lockId":"%s","expiresAtMs":%.0f,"acquiredAtMs":%.0f,"fence":"%015.0f"}',
    ARGV[4], ARGV[1], expires_at, now, fence),
  'PX', ARGV[3])
if turn then redis.pcall('DEL', KEYS[4]) end
if ARGV[6] == '1' then redis.pcall('ZREM', KEYS[5], ARGV[1]) end
return {1, fence, expires_at, expires_at - now}
