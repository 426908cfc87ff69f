-- $1: key. Excludes every other SyncGuard for this key until the transaction ends. A statement of its own: one that waits for
-- it and then reads, reads what was there before it waited.
SELECT pg_advisory_xact_lock(hashtext($1))
