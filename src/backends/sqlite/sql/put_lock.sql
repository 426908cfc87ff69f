INSERT OR REPLACE INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
