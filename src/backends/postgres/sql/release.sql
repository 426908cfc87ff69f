-- $1: lock id. One row: 1, or -1 not found, -2 expired.
WITH held AS MATERIALIZED (
  SELECT key, expires_at_ms FROM {locks} WHERE lock_id = $1 FOR UPDATE
), moment AS MATERIALIZED (
  SELECT {now} AS now FROM (SELECT count(*) FROM held) AS locked
), gone AS (
  DELETE FROM {locks} AS locks USING held, moment
  WHERE locks.key = held.key AND locks.lock_id = $1 AND held.expires_at_ms > moment.now - 1000
  RETURNING locks.key
){pass_turn}
SELECT CASE WHEN EXISTS (SELECT FROM gone) THEN 1 WHEN EXISTS (SELECT FROM held) THEN -2 ELSE -1 END AS verdict{told}
