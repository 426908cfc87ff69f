-- KEYS: lock; ARGV: what the names of indexes begin with
-- Removes a lock that has been dead for so long that nobody can want to extend it: core/liveness.hpp, is_removable.
-- Where the name of the index had to be hashed, it stays until it expires.
local guard = 1000
local lock = read_lock(KEYS[1])
if lock and now_in_ms() - lock.expiresAtMs > tolerance + guard then redis.call('DEL', KEYS[1], ARGV[1] .. lock.lockId) end
return 1
