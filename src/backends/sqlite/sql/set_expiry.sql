UPDATE syncguard_locks SET expires_at_ms = ?2 WHERE lock_id = ?1
