-- One step of listing locks.
-- KEYS: any of the same slot; ARGV: cursor, pattern of names, how many names to examine, what the names of locks begin with,
-- and if there are queues what their names begin with
-- Returns {next cursor, now}, then for each live lock {key, expires at, acquired at, fence, holder, number of waiters or -1},
-- and its name if that is not made from the key. Leaves out what is too long for a lock: clients drop a connection on which
-- a reply is too long.
-- include describe
local found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
-- include now
local answer = {found[1], now}
local names = found[2]
if #names == 0 then return answer end
for i, value in ipairs(redis.call('MGET', unpack(names))) do
  -- A value that is not a string is false.
  local stored = value or ''
  -- include decode
  if lock and lock.expiresAtMs > live_after and #describe(lock) > 1 and #lock.key <= 512 and #lock.fence == 15 then
    local holder = type(lock.holder) == 'string' and #lock.holder <= 256 and lock.holder or ''
    local entry = {lock.key, lock.expiresAtMs, lock.acquiredAtMs, lock.fence, holder,
      count_waiters(ARGV[5] and ARGV[5] .. lock.key)}
    if names[i] ~= ARGV[4] .. lock.key then entry[7] = names[i] end
    answer[#answer + 1] = entry
  end
end
return answer
