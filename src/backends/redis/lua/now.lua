-- The server's time in seconds and microseconds, and in ms. A lock is live if it expires after live_after: see
-- syncguard/liveness.hpp.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local live_after = now - TOLERANCE
