-- KEYS: lock, fence counter, turn, index, and the queue if it waits there
-- ARGV: lock id, ttl, ttl + tolerance, the key as a JSON string
-- Returns {1, fence, expires at, remaining}, {0, free in}, {-3} for no lock, {-4} for a counter at its end.
local stored = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local now = now_in_ms()
if stored[1] then
  local lock = decode_lock(stored[1])
  if not lock then return {-3} end
  if is_live(lock, now) then
    if lock.lockId ~= ARGV[1] then return {0, lock.expiresAtMs + tolerance - now} end
    if KEYS[5] then redis.pcall('ZREM', KEYS[5], ARGV[1]) end
    return {1, tonumber(lock.fence), lock.expiresAtMs, lock.expiresAtMs - now}
  end
end
local turn = stored[3]
if turn and turn ~= ARGV[1] then
  -- No reservation lasts longer, even if somebody else made it, or the server's clock was set back.
  local left = redis.call('PTTL', KEYS[3])
  if left > 0 and left <= 50 then return {0, left} end
end
local counter = stored[2] or '0'
-- Fence::refuse_above
if not counter:match('^%d+$') or tonumber(counter) >= 900000000000000 then return {-4} end

-- A script is not rolled back, so that nothing is written before it is known to work. MGET sees nothing where something of
-- another type is stored: a lock's place that is taken so makes the first write fail; a counter's place makes the second
-- fail, and the first is taken back.
local fence = tonumber(counter) + 1
local expires_at = now + ARGV[2]
local document = string.format('{"key":%s,"lockId":"%s","expiresAtMs":%d,"acquiredAtMs":%d,"fence":"%015d"}',
  ARGV[4], ARGV[1], expires_at, now, fence)
if stored[1] then
  redis.call('SET', KEYS[1], document, 'PX', ARGV[3])
elseif not redis.call('SET', KEYS[1], document, 'PX', ARGV[3], 'NX') then
  return redis.call('GET', KEYS[1])
end
local counted = redis.pcall('INCR', KEYS[2])
if counted ~= fence then
  redis.call('DEL', KEYS[1])
  return counted
end
redis.call('SET', KEYS[4], KEYS[1], 'PX', ARGV[3])
if turn then redis.pcall('DEL', KEYS[3]) end
if KEYS[5] then redis.pcall('ZREM', KEYS[5], ARGV[1]) end
return {1, fence, expires_at, expires_at - now}
