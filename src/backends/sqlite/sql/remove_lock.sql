DELETE FROM syncguard_locks WHERE lock_id = ?1
