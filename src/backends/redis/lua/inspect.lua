-- KEYS: lock, fence counter, and the queue if there is one
-- Returns {now, counter, number of waiters or -1, a lock as lookup_key returns it}.
local stored = redis.call('MGET', KEYS[1], KEYS[2])
local now = now_in_ms()
local found = {0}
if stored[1] then
  local lock = decode_lock(stored[1])
  if not lock then
    found = {-3}
  elseif is_live(lock, now) then
    found = describe(lock)
  end
end
return {now, stored[2] or '0', count_waiters(KEYS[3]), found}
