-- KEYS: lock; ARGV: the common beginning of index names
-- Removes a lock that has been dead for so long that no holder can still extend it: syncguard/liveness.hpp, is_removable.
-- An index with a hashed name stays until it expires.
local stored = redis.call('GET', KEYS[1])
if not stored then return YES end
-- include decode
-- include now
if lock and lock.expiresAtMs < live_after - TOLERANCE then redis.call('DEL', KEYS[1], ARGV[1] .. lock.lockId) end
return YES
