-- KEYS: index; ARGV: lock id, ttl, ttl + tolerance
-- Returns {1, expires at, remaining}, or {why not}, as find_owned says.
local lock, name, now = find_owned(KEYS[1], ARGV[1])
if not lock then return {name} end
lock.expiresAtMs = now + ARGV[2]
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SET', name, cjson.encode(lock), 'PX', ARGV[3])
return {1, lock.expiresAtMs, lock.expiresAtMs - now}
