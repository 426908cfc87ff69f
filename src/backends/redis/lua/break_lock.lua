-- KEYS: lock; ARGV: fence, what the names of indexes begin with, and if there are queues what the names of queues, turns and
-- channels begin with
-- Returns 1, 0 if the key has no live lock with this fence, or -3 if the value is not a lock. Where the name of the index had to be hashed,
-- it stays until it expires.
local lock = read_lock(KEYS[1])
if lock == nil then return 0 end
if not lock then return -3 end
if lock.fence ~= ARGV[1] or not is_live(lock, now_in_ms()) then return 0 end
redis.call('DEL', KEYS[1], ARGV[2] .. lock.lockId)
if ARGV[3] and type(lock.key) == 'string' then pass_turn(ARGV[3] .. lock.key, ARGV[4] .. lock.key, ARGV[5]) end
return 1
