-- KEYS: lock; ARGV: fence, what the names of indexes begin with, and if there are queues what the names of queues, turns and
-- channels begin with
-- Returns YES, NO if the key has no live lock with this fence, or FOREIGN. Where the name of the index had to be hashed,
-- it stays until it expires.
-- include read
if lock.fence ~= ARGV[1] then return NO end
redis.call('DEL', KEYS[1], ARGV[2] .. lock.lockId)
if not ARGV[3] or type(lock.key) ~= 'string' then return YES end
local queue, turn_name, wake_root = ARGV[3] .. lock.key, ARGV[4] .. lock.key, ARGV[5]
-- include pass
return YES
