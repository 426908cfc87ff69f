-- The statements of setup, and the queries that find tables. Each becomes a constant with its name: see cmake/SyncGuardEmbed.cmake.

-- name: create_locks
-- holder is a label for people. It counts only while holder_lock_id equals lock_id, because other libraries replace the lock without it.
CREATE TABLE IF NOT EXISTS {locks} (
  key pg_catalog.text PRIMARY KEY,
  lock_id pg_catalog.text NOT NULL,
  expires_at_ms BIGINT NOT NULL,
  acquired_at_ms BIGINT NOT NULL,
  fence pg_catalog.text NOT NULL,
  user_key pg_catalog.text NOT NULL,
  holder pg_catalog.text,
  holder_lock_id pg_catalog.text
);

-- name: add_holder
ALTER TABLE {locks} ADD COLUMN IF NOT EXISTS holder pg_catalog.text;

-- name: add_holder_lock_id
ALTER TABLE {locks} ADD COLUMN IF NOT EXISTS holder_lock_id pg_catalog.text;

-- name: create_lock_id_index
CREATE UNIQUE INDEX IF NOT EXISTS {lock_id_index} ON {locks} (lock_id);

-- name: create_expires_index
CREATE INDEX IF NOT EXISTS {expires_index} ON {locks} (expires_at_ms);

-- name: create_counters
CREATE TABLE IF NOT EXISTS {counters} (
  fence_key pg_catalog.text PRIMARY KEY,
  fence BIGINT NOT NULL DEFAULT 0,
  key_debug pg_catalog.text
);

-- name: create_waiters
-- The queue decides order only, never safety, so a crash may empty it. waiter is the hash of the waiter's lock id, because every role may
-- listen to notifications. turn_until_ms: zero in the queue; the end of the waiter's turn after it has left the queue. The index of keys
-- begins with both, because the server may otherwise plan to find a turn by reading a whole queue.
CREATE UNLOGGED TABLE IF NOT EXISTS {waiters} (
  waiter pg_catalog.text PRIMARY KEY,
  key pg_catalog.text NOT NULL,
  place BIGINT NOT NULL,
  reservation_ms BIGINT NOT NULL,
  seen_at_ms BIGINT NOT NULL,
  turn_until_ms BIGINT NOT NULL
);

-- name: create_queue_index
CREATE INDEX IF NOT EXISTS {queue_index} ON {waiters} (key, turn_until_ms, place);

-- name: create_place_index
-- For purging. An expression, because the server may otherwise plan to use this index, which is smaller, to find the first waiter of a key.
CREATE INDEX IF NOT EXISTS {place_index} ON {waiters} ((place + 0));

-- name: tables
-- $1, $2: schema and name of the table of locks; $3, $4: of the counters. Without a schema, the remembered search path decides. Returns one
-- row for each relation that may be meant, in the order of the path: which table it is, its schema, whether it is a table, its owner,
-- whether the owner is trusted (this user, a superuser or the owner of the database), whether this user may use it, its id, and whether
-- locks can carry the label of their holder.
WITH wanted(which, schema, name) AS (
  VALUES ('locks', $1::text, $2::text), ('counters', $3::text, $4::text), ('waiters', $1::text, $2::text || '_waiters')
), path AS (
  SELECT schema, position FROM unnest(current_setting('syncguard.search_path')::text[]) WITH ORDINALITY AS path(schema, position)
), places AS (
  SELECT which, name, path.schema, position FROM wanted, path WHERE wanted.schema = ''
  UNION ALL
  SELECT which, name, schema, 1 FROM wanted WHERE schema <> ''
)
SELECT which, nspname, relkind IN ('r', 'p'), pg_get_userbyid(relowner),
  relowner IN (SELECT oid FROM pg_roles WHERE rolsuper OR rolname = current_user
    UNION ALL SELECT datdba FROM pg_database WHERE datname = current_database()),
  has_table_privilege(relation.oid, 'SELECT') AND has_table_privilege(relation.oid, 'INSERT')
    AND has_table_privilege(relation.oid, 'UPDATE') AND has_table_privilege(relation.oid, 'DELETE'),
  relation.oid,
  (SELECT count(*) = 2 FROM pg_attribute
    WHERE attrelid = relation.oid AND attname IN ('holder', 'holder_lock_id') AND NOT attisdropped
      AND has_column_privilege(relation.oid, attnum, 'SELECT') AND has_column_privilege(relation.oid, attnum, 'INSERT')
      AND has_column_privilege(relation.oid, attnum, 'UPDATE'))
FROM places
JOIN pg_namespace AS namespace ON nspname = schema AND namespace.oid <> pg_my_temp_schema()
JOIN pg_class AS relation ON relnamespace = namespace.oid AND relname = name AND relkind NOT IN ('i', 'I', 'c', 't')
ORDER BY which, position

-- name: functions
-- $1: the owner of the table of locks, $2: the signatures of functions, as an array. Returns one row for each existing function: whether
-- its owner is trusted ($1, this user, a superuser or the owner of the database), and whether this user may call it.
SELECT proowner IN (SELECT oid FROM pg_roles WHERE rolsuper OR rolname IN (current_user, $1)
    UNION ALL SELECT datdba FROM pg_database WHERE datname = current_database()),
  has_function_privilege(pg_proc.oid, 'EXECUTE')
FROM unnest($2::text[]) AS wanted(signature) JOIN pg_proc ON pg_proc.oid = to_regprocedure(signature)

-- name: has_function
-- $1: the signature of a function.
SELECT to_regprocedure($1) IS NOT NULL

-- name: schema_has
-- $1: the name of a table or an index, $2: the name of a column in it, or empty.
SELECT to_regclass($1) IS NOT NULL AND ($2 = '' OR EXISTS (
  SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped))

-- name: foreign_owner
-- $1: the name of a table. Returns its owner, unless that is this user, a role of this user, a superuser or the owner of the database. The
-- roles of a superuser do not count, because a superuser has every role.
SELECT owner.rolname
FROM pg_class AS relation JOIN pg_roles AS owner ON owner.oid = relowner JOIN pg_roles AS self ON self.rolname = current_user
WHERE relation.oid = to_regclass($1) AND NOT owner.rolsuper AND owner.oid <> self.oid
  AND (self.rolsuper OR NOT pg_has_role(owner.oid, 'USAGE'))
  AND owner.oid <> (SELECT datdba FROM pg_database WHERE datname = current_database())
