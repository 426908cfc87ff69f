CREATE TABLE IF NOT EXISTS {locks} (
  key TEXT PRIMARY KEY,
  lock_id TEXT NOT NULL,
  expires_at_ms BIGINT NOT NULL,
  acquired_at_ms BIGINT NOT NULL,
  fence TEXT NOT NULL,
  user_key TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS {lock_id_index} ON {locks} (lock_id);
CREATE INDEX IF NOT EXISTS {expires_index} ON {locks} (expires_at_ms);

CREATE TABLE IF NOT EXISTS {counters} (
  fence_key TEXT PRIMARY KEY,
  fence BIGINT NOT NULL DEFAULT 0,
  key_debug TEXT
);

-- Order only, never safety: a crash may empty it.
CREATE UNLOGGED TABLE IF NOT EXISTS {waiters} (
  position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key TEXT NOT NULL,
  waiter TEXT NOT NULL UNIQUE,
  seen_at_ms BIGINT NOT NULL,
  turn_until_ms BIGINT
);
CREATE INDEX IF NOT EXISTS {waiters_index} ON {waiters} (key, position);
