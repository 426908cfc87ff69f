INSERT INTO syncguard_locks_waiters (key, waiter) VALUES (?1, ?2) ON CONFLICT (waiter) DO NOTHING
