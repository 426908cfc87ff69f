-- The same tables of locks and counters as in PostgreSQL, with SQLite's types.
-- holder: a label for people, NULL if there is none.
-- renewed_at_ms: the time of the last extension, NULL if there was none. The ttl is expires_at_ms minus this time.
CREATE TABLE IF NOT EXISTS syncguard_locks (
  key TEXT NOT NULL PRIMARY KEY,
  lock_id TEXT NOT NULL,
  expires_at_ms INTEGER NOT NULL,
  acquired_at_ms INTEGER NOT NULL,
  fence TEXT NOT NULL,
  user_key TEXT NOT NULL,
  renewed_at_ms INTEGER,
  holder TEXT
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS idx_syncguard_locks_lock_id ON syncguard_locks (lock_id);
CREATE INDEX IF NOT EXISTS idx_syncguard_locks_expires ON syncguard_locks (expires_at_ms);

CREATE TABLE IF NOT EXISTS syncguard_fence_counters (
  fence_key TEXT NOT NULL PRIMARY KEY,
  fence INTEGER NOT NULL DEFAULT 0,
  key_debug TEXT
) STRICT;

-- The queue decides order only, never safety. place: the order in the queue. turn_until_ms: NULL in the queue; the end of the waiter's turn
-- after it has left the queue. seen_at_ms: the waiter's last sign of life.
CREATE TABLE IF NOT EXISTS syncguard_locks_waiters (
  waiter TEXT NOT NULL PRIMARY KEY,
  key TEXT NOT NULL,
  place INTEGER NOT NULL,
  seen_at_ms INTEGER NOT NULL,
  turn_until_ms INTEGER
) STRICT;
CREATE INDEX IF NOT EXISTS idx_syncguard_locks_waiters_place ON syncguard_locks_waiters (key, place);
CREATE INDEX IF NOT EXISTS idx_syncguard_locks_waiters_turn ON syncguard_locks_waiters (key) WHERE turn_until_ms IS NOT NULL;
