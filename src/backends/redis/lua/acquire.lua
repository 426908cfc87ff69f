-- KEYS: lock, fence counter, turn, index, and the queue if the caller is in it
-- ARGV: lock id, ttl, ttl + tolerance, the key as a JSON string, how fences are made: 'clock' or 'counter', the
-- holder as a further field of the JSON document, or nothing, and 'confirm' if replicas have to confirm the lock
-- Returns {1, fence, expires at, remaining}, {0, free in}, {0, free in, 1} if the key is reserved, -3 if the value is not a lock, -4 if the
-- counter is at its limit.
local found = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local stored, counter, turn = found[1], found[2], found[3]
-- include now
if stored then
  -- include decode
  if not lock then return -3 end
  if lock.expiresAtMs > live_after then
    if lock.lockId ~= ARGV[1] then return {0, lock.expiresAtMs - live_after} end
    -- WAIT confirms only writes of its own connection, and the first attempt may have used another one.
    if ARGV[7] == 'confirm' then redis.call('SET', KEYS[1], stored, 'KEEPTTL') end
    if KEYS[5] then redis.pcall('ZREM', KEYS[5], ARGV[1]) end
    -- More than the ttl is left if the clock was set back.
    return {1, tonumber(lock.fence), lock.expiresAtMs, math.min(lock.expiresAtMs - now, tonumber(ARGV[2]))}
  end
end
-- A turn is a lock id. With the prefixes X and X-turn in one database, this may be another application's lock.
local is_turn = turn and #turn == 22 and not turn:find('[^%w_-]')
if is_turn and turn ~= ARGV[1] then
  -- include reservation
  -- Our reservations are never longer. Another program wrote this one, or the server's clock was set back.
  local left = redis.call('PTTL', KEYS[3])
  if left > 0 and left <= max_reservation then return {0, left, 1} end
end
local count = counter or '0'
-- Fence::refuse_above
if not count:match('^%d+$') or tonumber(count) >= 900000000000000 then return -4 end

-- A script is not rolled back, so everything that can fail is checked before the first write. MGET returns nil for a value of
-- another type. If such a value is at the lock's name, the first write fails. If it is at the counter's name, INCR fails, and
-- the first write is undone.
local fence = tonumber(count) + 1
if ARGV[5] == 'clock' then
  -- core::clock_floor
  local floor = time[1] * 10000 + math.floor(time[2] / 100)
  if floor > fence and floor <= 90000000000000 then fence = floor end
end
local expires_at = now + ARGV[2]
local document = string.format('{"key":%s,"lockId":"%s","expiresAtMs":%d,"acquiredAtMs":%d,"fence":"%015d"%s}',
  ARGV[4], ARGV[1], expires_at, now, fence, ARGV[6])
if stored then
  redis.call('SET', KEYS[1], document, 'PX', ARGV[3])
elseif not redis.call('SET', KEYS[1], document, 'PX', ARGV[3], 'NX') then
  return redis.call('GET', KEYS[1])
end
if not counter then
  local counted = redis.pcall('INCR', KEYS[2])
  if type(counted) ~= 'number' then
    redis.call('DEL', KEYS[1])
    return counted
  end
end
-- Formatted by %d, because tostring() turns a number of 14 digits into 1.8e+13.
redis.call('SET', KEYS[2], string.format('%d', fence))
redis.call('SET', KEYS[4], KEYS[1], 'PX', ARGV[3])
if is_turn then redis.pcall('DEL', KEYS[3]) end
if KEYS[5] then redis.pcall('ZREM', KEYS[5], ARGV[1]) end
return {1, fence, expires_at, expires_at - now}
