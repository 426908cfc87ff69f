-- $1: key
SELECT user_key, lock_id, expires_at_ms, acquired_at_ms, fence FROM {locks}
WHERE key = $1 AND expires_at_ms > {now} - 1000
