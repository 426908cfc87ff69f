-- KEYS: an index, a queue and a turn that are not in use; ARGV: a channel without listeners
-- Returns the commands that locks need and that fail for this user, each followed by the server's message. Stores nothing.
local failed = {}
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    failed[#failed + 1] = (...)
    failed[#failed + 1] = answer.err
  end
end
try('TIME')
try('SET', KEYS[1], '1', 'PX', 1000)
try('GET', KEYS[1])
try('MGET', KEYS[1])
try('INCR', KEYS[1])
try('PEXPIRE', KEYS[1], 1000)
try('PTTL', KEYS[1])
try('ZADD', KEYS[2], 1, 'x')
try('ZRANGE', KEYS[2], 0, 0)
try('ZREMRANGEBYRANK', KEYS[2], 0, 0)
try('ZREM', KEYS[2], 'x')
try('SET', KEYS[3], 'x', 'PX', 50)
try('DEL', KEYS[1], KEYS[2], KEYS[3])
try('PUBLISH', ARGV[1], '')
return failed
