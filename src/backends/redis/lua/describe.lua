-- The description of a lock, for lookups and lists.

-- The reply of lookups. Only the fields of a lock: clients close a connection on which a reply is too long or too deep.
local function describe(lock)
  local is_complete = type(lock.key) == 'string' and type(lock.fence) == 'string'
    and type(lock.acquiredAtMs) == 'number' and math.abs(lock.acquiredAtMs) <= 1e15
  if not is_complete then return {FOREIGN} end
  return {YES, lock.key, lock.lockId, lock.expiresAtMs, lock.acquiredAtMs, lock.fence,
    type(lock.holder) == 'string' and lock.holder or ''}
end

-- How many wait in a queue; -1 if there is no queue, or if this user may not count.
local function count_waiters(queue)
  local count = queue and redis.pcall('ZCARD', queue)
  return type(count) == 'number' and count or -1
end
