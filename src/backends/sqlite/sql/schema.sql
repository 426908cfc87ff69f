-- The same tables as in PostgreSQL, with SQLite's types.
-- holder: a label for people. It counts only while holder_lock_id equals lock_id, because older versions replace the lock without it.
-- renewed_at_ms: the time of the last extension, NULL if there was none. The ttl is expires_at_ms minus this time.
CREATE TABLE IF NOT EXISTS syncguard_locks (
  key TEXT NOT NULL PRIMARY KEY,
  lock_id TEXT NOT NULL,
  expires_at_ms INTEGER NOT NULL,
  acquired_at_ms INTEGER NOT NULL,
  fence TEXT NOT NULL,
  user_key TEXT NOT NULL,
  renewed_at_ms INTEGER,
  holder TEXT,
  holder_lock_id TEXT
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS idx_syncguard_locks_lock_id ON syncguard_locks (lock_id);
CREATE INDEX IF NOT EXISTS idx_syncguard_locks_expires ON syncguard_locks (expires_at_ms);

CREATE TABLE IF NOT EXISTS syncguard_fence_counters (
  fence_key TEXT NOT NULL PRIMARY KEY,
  fence INTEGER NOT NULL DEFAULT 0,
  key_debug TEXT
) STRICT;

-- The queue decides order only, never safety. turn_until_ms: the end of the waiter's turn, NULL before its turn. seen_at_ms: updated about
-- every hour while the waiter is alive.
CREATE TABLE IF NOT EXISTS syncguard_locks_waiters (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  key TEXT NOT NULL,
  waiter TEXT NOT NULL,
  turn_until_ms INTEGER,
  seen_at_ms INTEGER
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS idx_syncguard_locks_waiters_waiter ON syncguard_locks_waiters (waiter);
CREATE INDEX IF NOT EXISTS idx_syncguard_locks_waiters_key ON syncguard_locks_waiters (key, position);
CREATE INDEX IF NOT EXISTS idx_syncguard_locks_waiters_key_turn ON syncguard_locks_waiters (key, turn_until_ms)
  WHERE turn_until_ms IS NOT NULL;
