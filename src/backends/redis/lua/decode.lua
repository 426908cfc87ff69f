-- Makes a lock from what is stored. The lock is false if the value is not one. A lock needs far less than 16 KiB, even with a key of 512
-- bytes that are all escaped, and none expires in thirty thousand years (1e15 ms). That comparison is false for NaN.
local is_json, lock = false, false
if #stored <= 16384 then is_json, lock = pcall(cjson.decode, stored) end
if not (is_json and type(lock) == 'table' and type(lock.lockId) == 'string'
  and type(lock.expiresAtMs) == 'number' and math.abs(lock.expiresAtMs) <= 1e15) then
  lock = false
end
