-- The start and the end of every transaction. Each statement becomes a constant with its name: see cmake/SyncGuardEmbed.cmake.

-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED

-- name: settings
-- $1, $2: the lock timeout and the statement timeout in ms. After this statement, names resolve only in pg_catalog, so that no object of
-- another role is ever called; this statement itself is fully qualified. Waits end on the server, too, and a granted fence survives a
-- crash. Sequential scans are off, because these tables are usually nearly empty when the server plans a statement, and it would then keep
-- scanning them as they grow.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
  pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('statement_timeout', $2, true),
  pg_catalog.set_config('synchronous_commit',
    CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'remote_apply'
    THEN 'remote_apply' ELSE 'on' END, true),
  pg_catalog.set_config('enable_seqscan', 'off', true)

-- name: timeouts
-- $1, $2: as in settings. Sent before a function call, in the same implicit transaction, because a statement_timeout that a function sets
-- does not apply to the function itself. Fully qualified.
SELECT pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('statement_timeout', $2, true)

-- name: commit
COMMIT

-- name: remember_search_path
-- For statements after pin_search_path that need the user's search_path. It does not include the schema of temporary tables.
SELECT pg_catalog.set_config('syncguard.search_path', pg_catalog.current_schemas(false)::pg_catalog.text, true)

-- name: pin_search_path
SET LOCAL search_path = pg_catalog, pg_temp

-- name: now
floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: clock_fence
floor(extract(epoch FROM clock_timestamp()) * 10000)::bigint
