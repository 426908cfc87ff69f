-- KEYS: fence counter; ARGV: the least value that it is to have. Returns its value.
local counter = redis.call('GET', KEYS[1]) or '0'
if counter:match('^%d+$') and tonumber(counter) < tonumber(ARGV[1]) then
  counter = ARGV[1]
  redis.call('SET', KEYS[1], counter)
end
return counter
