-- KEYS: index; ARGV: lock id, ttl, ttl + tolerance
-- Returns {YES, expires at, remaining}, or the reason, see owned.lua.
-- include owned
lock.expiresAtMs = now + ARGV[2]
-- A script is not rolled back, so steps that can fail come before the first write.
local document = cjson.encode(lock)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SET', name, document, 'PX', ARGV[3])
return {YES, lock.expiresAtMs, lock.expiresAtMs - now}
