-- KEYS: index; ARGV: lock id, and if there are queues, the common beginnings of the names of queues, turns and channels
-- Returns 1, or the reason, see find_owned.
local lock, name = find_owned(KEYS[1], ARGV[1])
if not lock then return name end
redis.call('DEL', name, KEYS[1])
if ARGV[2] and type(lock.key) == 'string' then pass_turn(ARGV[2] .. lock.key, ARGV[3] .. lock.key, ARGV[4]) end
return 1
