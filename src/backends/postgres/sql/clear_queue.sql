-- $1: key. Those whose turn is over, who did not come, and those who have not been seen for long.
DELETE FROM {waiters} USING (SELECT {now} AS now) AS moment
WHERE key = $1 AND (turn_until_ms <= now OR turn_until_ms > now + 50 OR seen_at_ms < now - 30000)
