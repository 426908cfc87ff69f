-- KEYS: lock, fence counter, and the queue if there is one
-- Returns {now, counter, number of waiters or -1, a lock as lookup_key returns it}.
-- include describe
local values = redis.call('MGET', KEYS[1], KEYS[2])
-- include now
local stored, found = values[1], {NO}
if stored then
  -- include decode
  if not lock then
    found = {FOREIGN}
  elseif lock.expiresAtMs > live_after then
    found = describe(lock)
  end
end
return {now, values[2] or '0', count_waiters(KEYS[3]), found}
