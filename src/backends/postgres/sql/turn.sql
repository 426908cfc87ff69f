turn AS MATERIALIZED (
  -- No reservation lasts longer than 50 ms: one that is further away is from before the clock was set back.
  SELECT turn_until_ms FROM {waiters}, moment
  WHERE key = $1 AND waiter <> $2 AND turn_until_ms > moment.now AND turn_until_ms <= moment.now + 50 LIMIT 1
),
