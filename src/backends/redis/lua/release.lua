-- KEYS: index; ARGV: lock id, and if there are queues, the common beginnings of the names of queues, turns and channels
-- Returns YES, or the reason, see owned.lua.
-- include owned
redis.call('DEL', name, KEYS[1])
if not ARGV[2] or type(lock.key) ~= 'string' then return YES end
local queue, turn_name, wake_root = ARGV[2] .. lock.key, ARGV[3] .. lock.key, ARGV[4]
-- include pass
return YES
