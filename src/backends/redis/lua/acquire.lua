-- KEYS: lock, fence counter, turn, index, queue
-- ARGV: lock id, ttl, ttl + tolerance, the key as a JSON string, how fences are made: 'clock' or 'counter', the
-- holder as a further field of the JSON document, or nothing, 'confirm' if replicas have to confirm the lock, and 'waits' if the
-- caller may be in the queue
-- Returns {YES, fence, expires at, remaining}, {NO, free in}, FOREIGN or COUNTER_AT_END.
local found = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local stored, counter, turn_text = found[1], found[2], found[3]
-- include now
if stored then
  -- include decode
  if not lock then return FOREIGN end
  if lock.expiresAtMs > live_after then
    if lock.lockId ~= ARGV[1] then return {NO, lock.expiresAtMs - live_after} end
    -- WAIT confirms only writes of its own connection, and the first attempt may have used another one.
    if ARGV[7] == 'confirm' then redis.call('SET', KEYS[1], stored, 'KEEPTTL') end
    if ARGV[8] == 'waits' then redis.pcall('ZREM', KEYS[5], ARGV[1]) end
    if turn_text and turn_text:sub(1, 23) == ARGV[1] .. ' ' then redis.pcall('DEL', KEYS[3]) end
    -- More than the ttl is left if the clock was set back.
    return {YES, tonumber(lock.fence), lock.expiresAtMs, math.min(lock.expiresAtMs - now, tonumber(ARGV[2]))}
  end
end
local has_turns, is_in_doubt = false, false
if turn_text then
  -- include turn
  has_turns = turn_waiter
  if turn_waiter and turn_waiter ~= ARGV[1] then
    if turn_is_pending then return {NO, turn_until - now} end
    is_in_doubt = true
  end
end
local count = counter or '0'
if not count:match('^%d+$') or tonumber(count) >= REFUSE_ABOVE then return COUNTER_AT_END end

-- A script is not rolled back, so everything that can fail is checked before the first write. MGET returns nil for a value of
-- another type. If such a value is at the lock's name, the first write fails. If it is at the counter's name, INCR fails, and
-- the first write is undone.
local fence = tonumber(count) + 1
if ARGV[5] == 'clock' then
  -- core::clock_floor
  local floor = time[1] * 10000 + math.floor(time[2] / 100)
  if floor > fence and floor <= WARN_ABOVE then fence = floor end
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
if has_turns then redis.pcall('DEL', KEYS[3]) end
if ARGV[8] == 'waits' then redis.pcall('ZREM', KEYS[5], ARGV[1]) end
if is_in_doubt then
  local queue = KEYS[5]
  -- include doubt
end
return {YES, fence, expires_at, expires_at - now}
