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
  local lock, turn = stored[i], stored[i + 1]
  if lock and lock:find(id, 1, true) then return -1 end
  if turn == id then return lock and -1 or 0 end
  if redis.call('ZADD', queue, 'NX', place, id) == 1 then redis.call('PEXPIRE', queue, 3600000) end
  if lock then return -rounds(queue) end
  if turn then
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
    local ahead = redis.call('ZPOPMIN', queue)[1]
    if not ahead or ahead == id then break end
  end
  redis.call('ZREM', queue, id)
  redis.call('SET', KEYS[i + 1], id, 'PX', clamp_reservation(tonumber(ARGV[i + 2])))
  return 0
end

local answers = {}
for i = 1, #KEYS, 3 do answers[#answers + 1] = poll(i) end
return answers
