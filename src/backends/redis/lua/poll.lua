-- Notices turns that were not taken, because their waiters are dead or frozen.
-- KEYS: for each waiter its lock, turn and queue; ARGV: for each waiter its id, its place and its reservation in ms. The
-- place is empty while the waiter is about to try.
-- Returns for each waiter: 0 to try now, the time in ms until another waiter's reservation ends, or -n to wait and poll again
-- in n rounds.
-- include reservation
-- include place
local stored = redis.call('MGET', unpack(KEYS))
local max_removed = 64

-- Rounds until the next poll. A waiter that is alone has no frozen one ahead of it. In a long queue each waiter
-- polls less often, so that the number of polls for one key does not grow without limit.
local function rounds(queue)
  local count = redis.pcall('ZCARD', queue)
  -- The right to count is optional.
  if type(count) ~= 'number' then return 1 end
  return count == 1 and 4 or math.ceil(count / 64)
end

local noticed = {}
local function poll(i)
  local queue, id, place = KEYS[i + 2], ARGV[i], ARGV[i + 1]
  if place == '' then return -1 end
  -- A turn of another form may be another application's lock: see pass_turn.lua.
  local lock, turn = stored[i], stored[i + 1]
  if lock and lock:find(id, 1, true) then return -1 end
  if turn == id then return lock and -1 or 0 end
  local added = redis.pcall('ZADD', queue, 'NX', place, id)
  if type(added) ~= 'number' then return -1 end
  if added == 1 then
    if redis.call('PTTL', queue) == -1 then
      -- The queue was lost, or it is another program's: ours expire.
      redis.call('ZREM', queue, id)
      if redis.call('PTTL', queue) == -1 then return -1 end
      redis.call('ZADD', queue, place, id)
    end
    redis.call('PEXPIRE', queue, 3600000)
  end
  if lock then return -rounds(queue) end
  if is_lock_id(turn) then
    local left = redis.call('PTTL', KEYS[i + 1])
    if left > 0 and left <= max_reservation then
      -- One of these waiters is enough to notice the end of the reservation.
      if noticed[queue] then return -rounds(queue) end
      noticed[queue] = true
      return left
    end
  end
  -- The key is free, and no waiter has taken it. The waiters ahead may be dead or frozen, and each would cost a reservation, so
  -- they are removed. A live one gets its old place back when it polls.
  for _ = 1, max_removed do
    local popped = redis.call('ZPOPMIN', queue)
    local ahead = popped[1]
    if not ahead or ahead == id then break end
    if not is_lock_id(ahead) then
      redis.call('ZADD', queue, popped[2], ahead)
      break
    end
  end
  redis.call('ZREM', queue, id)
  local length = clamp_reservation(tonumber(ARGV[i + 2]))
  if is_lock_id(turn) then
    redis.call('SET', KEYS[i + 1], id, 'PX', length)
  else
    redis.call('SET', KEYS[i + 1], id, 'PX', length, 'NX')
  end
  return 0
end

local answers = {}
for i = 1, #KEYS, 3 do answers[#answers + 1] = poll(i) end
return answers
