-- One step of searching for the highest fence counter.
-- KEYS: any key of the same slot; ARGV: cursor, pattern of the counters' names
-- Returns {next cursor, highest counter of this step}, or {-1} if this user may not run SCAN.
local found = redis.pcall('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 500)
if found.err then return {-1} end
local names, highest = found[2], 0
if #names > 0 then
  for _, value in ipairs(redis.call('MGET', unpack(names))) do
    highest = math.max(highest, tonumber(value or 0) or 0)
  end
end
return {found[1], highest}
