-- KEYS: queue, turn, lock; ARGV: waiter, the common beginning of channel names. If the waiter had its turn, the turn is
-- passed on, unless the key is locked: then the release of that lock gives the next turn.
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 and redis.call('GET', KEYS[2]) == ARGV[1] then
  redis.call('DEL', KEYS[2])
  local lock = read_lock(KEYS[3])
  if lock == nil or lock and not is_live(lock, now_in_ms()) then pass_turn(KEYS[1], KEYS[2], ARGV[2]) end
end
return 1
