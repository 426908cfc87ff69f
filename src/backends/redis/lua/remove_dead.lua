-- KEYS: lock; ARGV: what the names of indexes begin with
-- Removes a lock that has been dead for so long that nobody can want to extend it: core/liveness.hpp, is_removable.
local lock = read_lock(KEYS[1])
if lock and now_in_ms() - lock.expiresAtMs > 2000 then redis.call('DEL', KEYS[1], ARGV[1] .. lock.lockId) end
return 1
