-- $1: lock id, $2: ttl in ms. One row: 1, expires at, remaining; or -1 not found, -2 expired.
WITH held AS MATERIALIZED (
  SELECT key, expires_at_ms FROM {locks} WHERE lock_id = $1 FOR UPDATE
), moment AS MATERIALIZED (
  SELECT {now} AS now FROM (SELECT count(*) FROM held) AS locked
), changed AS (
  UPDATE {locks} AS locks SET expires_at_ms = moment.now + $2::bigint FROM held, moment
  WHERE locks.key = held.key AND locks.lock_id = $1 AND held.expires_at_ms > moment.now - 1000
  RETURNING locks.expires_at_ms
)
SELECT CASE WHEN EXISTS (SELECT FROM changed) THEN 1 WHEN EXISTS (SELECT FROM held) THEN -2 ELSE -1 END AS verdict,
  (SELECT expires_at_ms FROM changed) AS expires_at_ms, $2::bigint AS remaining
