-- What waiters notice that were not woken: an expired holder, a release by another library, a turn that was not used, an entry that was
-- removed.
-- KEYS: for each waiter its lock, turn and queue; ARGV: for each waiter its id and its place
-- Returns for each waiter: the time until the key is free, or -1 to try now; 1 if it is first; how many times as long to pause between
-- looks.
local values = redis.call('MGET', unpack(KEYS))
-- include now
local replies, taken_turns, queue_ttl, pause = {}, {}, 3600000, 1000

local function look(i)
  local turn_name, queue, id, place = KEYS[i + 1], KEYS[i + 2], ARGV[(i - 1) / 3 * 2 + 1], ARGV[(i - 1) / 3 * 2 + 2]
  -- Another waiter of this key may have taken the turn just now.
  local stored, turn_text = values[i], taken_turns[turn_name] or values[i + 1]
  local free_in
  if stored then
    -- include decode
    -- A value that is not a lock: the next attempt reports it.
    if not lock then return pause, 0, 1 end
    if lock.expiresAtMs > live_after then
      -- It has the lock, and only has to be told.
      if lock.lockId == id then return -1, 1, 1 end
      free_in = lock.expiresAtMs - live_after
    end
  end
  -- include turn
  local has_turn = turn_waiter == id
  if not has_turn then
    local added = redis.pcall('ZADD', queue, 'NX', place, id)
    if type(added) ~= 'number' then return pause, 0, 1 end
    if added == 1 then
      if redis.call('PTTL', queue) == -1 then
        -- The queue was lost, or it is another program's: ours expire.
        redis.call('ZREM', queue, id)
        if redis.call('PTTL', queue) == -1 then return pause, 0, 1 end
        redis.call('ZADD', queue, place, id)
      end
      redis.call('PEXPIRE', queue, queue_ttl)
    end
  end
  -- include standing
  if not free_in and turn_is_pending then
    if has_turn then return -1, 1, 1 end
    free_in = turn_until - now
  end
  if free_in then return free_in, is_first, crowd end

  -- The key is free, and no other waiter is about to take it.
  redis.pcall('ZREM', queue, id)
  if turn_waiter and not has_turn then
    -- include doubt
  end
  local waiter, place = id, tonumber(has_turn and turn_place or place)
  -- include reserve
  taken_turns[turn_name] = taken_turn
  return -1, 1, 1
end

for i = 1, #KEYS, 3 do
  local free_in, is_first, crowd = look(i)
  replies[i], replies[i + 1], replies[i + 2] = free_in, is_first, crowd
end
return replies
