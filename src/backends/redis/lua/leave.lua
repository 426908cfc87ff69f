-- KEYS: queue, turn; ARGV: waiter, what the names of channels begin with. A turn that had already come is passed on.
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 and redis.call('GET', KEYS[2]) == ARGV[1] then
  redis.call('DEL', KEYS[2])
  pass_turn(KEYS[1], KEYS[2], ARGV[2])
end
return 1
