-- $1: key, $2: waiter. A turn that had already come is passed on, unless somebody has the lock.
WITH moment AS MATERIALIZED (
  SELECT {now} AS now
), mine AS (
  DELETE FROM {waiters} WHERE waiter = $2 RETURNING turn_until_ms
), gone AS (
  SELECT $1 AS key FROM mine, moment WHERE turn_until_ms > now
    AND NOT EXISTS (SELECT FROM {locks} WHERE key = $1 AND expires_at_ms > now - 1000)
){pass_turn}
SELECT 1{told}
