-- $1: key, $2: lock id, $3: ttl in ms, $4: key of the counter, $5: the user's key
-- One row: 1, fence, expires at, remaining; 0, -, -, free in; -4 for a counter at its end. None: somebody who does not take
-- the advisory lock was faster.
WITH held AS MATERIALIZED (
  SELECT lock_id, expires_at_ms, fence FROM {locks} WHERE key = $1 FOR UPDATE
), moment AS MATERIALIZED (
  -- After the row is locked: what was waited for must not count as ttl.
  SELECT {now} AS now FROM (SELECT count(*) FROM held) AS locked
), live AS MATERIALIZED (
  SELECT held.* FROM held, moment WHERE held.expires_at_ms > moment.now - 1000
), {turn} counter AS MATERIALIZED (
  SELECT coalesce((SELECT fence FROM {counters} WHERE fence_key = $4), 0) AS fence
), counted AS (
  INSERT INTO {counters} AS counters (fence_key, fence, key_debug)
  SELECT $4, 1, $5 FROM counter
  WHERE NOT EXISTS (SELECT FROM live) AND NOT EXISTS (SELECT FROM turn) AND counter.fence BETWEEN 0 AND 899999999999999
  ON CONFLICT (fence_key) DO UPDATE SET fence = counters.fence + 1
  RETURNING counters.fence
), taken AS (
  INSERT INTO {locks} AS locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key)
  SELECT $1, $2, moment.now + $3::bigint, moment.now, lpad(counted.fence::text, 15, '0'), $5 FROM counted, moment
  ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms,
    acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key
    WHERE locks.expires_at_ms <= excluded.acquired_at_ms - 1000
  RETURNING locks.fence, locks.expires_at_ms
){leave}
SELECT 1 AS place, 1 AS verdict, fence, expires_at_ms, expires_at_ms - now AS time FROM live, moment WHERE lock_id = $2
UNION ALL
SELECT 2, 0, NULL, NULL, expires_at_ms + 1000 - now FROM live, moment WHERE lock_id <> $2
UNION ALL
SELECT 3, 1, fence, expires_at_ms, expires_at_ms - now FROM taken, moment
UNION ALL
SELECT 4, 0, NULL, NULL, turn_until_ms - now FROM turn, moment
UNION ALL
SELECT 5, -4, NULL, NULL, NULL FROM counter WHERE fence >= 900000000000000 OR fence < 0
ORDER BY place LIMIT 1
