-- $1: lock id. As lock_key, for the key that this lock has.
SELECT pg_advisory_xact_lock(hashtext(key)) FROM {locks} WHERE lock_id = $1
