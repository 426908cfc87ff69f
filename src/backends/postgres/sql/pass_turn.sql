, told AS (
  -- The oldest one that has shown that it is alive within the last 30 s.
  UPDATE {waiters} AS waiters SET turn_until_ms = moment.now + 50 FROM moment
  WHERE waiters.position = (
    SELECT position FROM {waiters}
    WHERE key = (SELECT key FROM gone) AND turn_until_ms IS NULL AND seen_at_ms > moment.now - 30000
    ORDER BY position LIMIT 1)
  RETURNING waiters.waiter
)
