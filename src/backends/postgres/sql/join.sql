-- $1: key, $2: waiter. One that is there keeps its place.
INSERT INTO {waiters} AS waiters (key, waiter, seen_at_ms)
VALUES ($1, $2, {now})
ON CONFLICT (waiter) DO UPDATE SET seen_at_ms = excluded.seen_at_ms
