-- KEYS: index; ARGV: lock id, and if there are queues what the names of queues, turns and channels begin with
-- Returns 1, or why not, as find_owned says.
local lock, name = find_owned(KEYS[1], ARGV[1])
if not lock then return name end
redis.call('DEL', name, KEYS[1])
if ARGV[2] and type(lock.key) == 'string' then pass_turn(ARGV[2] .. lock.key, ARGV[3] .. lock.key, ARGV[4]) end
return 1
