-- The tables that SyncGuard keeps in PostgreSQL, with SQLite's types, and the queue of waiters.
CREATE TABLE IF NOT EXISTS syncguard_locks (
  key TEXT NOT NULL PRIMARY KEY,
  lock_id TEXT NOT NULL,
  expires_at_ms INTEGER NOT NULL,
  acquired_at_ms INTEGER NOT NULL,
  fence TEXT NOT NULL,
  user_key TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS idx_syncguard_locks_lock_id ON syncguard_locks (lock_id);
CREATE INDEX IF NOT EXISTS idx_syncguard_locks_expires ON syncguard_locks (expires_at_ms);

CREATE TABLE IF NOT EXISTS syncguard_fence_counters (
  fence_key TEXT NOT NULL PRIMARY KEY,
  fence INTEGER NOT NULL DEFAULT 0,
  key_debug TEXT
) STRICT;

-- Order only, never safety. turn_until_ms is set when the turn has come; it is over when that time has passed.
CREATE TABLE IF NOT EXISTS syncguard_locks_waiters (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  key TEXT NOT NULL,
  waiter TEXT NOT NULL,
  turn_until_ms INTEGER
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS idx_syncguard_locks_waiters_waiter ON syncguard_locks_waiters (waiter);
CREATE INDEX IF NOT EXISTS idx_syncguard_locks_waiters_key ON syncguard_locks_waiters (key, position);
