-- KEYS: lock; ARGV: fence, what the names of indexes begin with, and if there are queues what the names of queues, turns and
-- channels begin with
-- Returns 1, 0 if the key has no live lock with this fence, or -3 if the value is not a lock. Where the name of the index had to be hashed,
-- it stays until it expires.
-- include read
if lock.fence ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], ARGV[2] .. lock.lockId)
if not ARGV[3] or type(lock.key) ~= 'string' then return 1 end
local queue, turn, wake_root = ARGV[3] .. lock.key, ARGV[4] .. lock.key, ARGV[5]
-- include pass_turn
return 1
