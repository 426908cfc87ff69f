-- The queries of the diagnosis. Each becomes a constant with its name: see cmake/SyncGuardEmbed.cmake.

-- name: diagnosis
-- $1, $2, $3: the names of the tables. Returns facts about the server, the search path and each table: its columns with their types, its
-- valid indexes with their columns, the privileges that this user lacks, what does not come from the library (triggers, rules, child tables,
-- foreign types of columns, and constraints, defaults, policies and indexes that call foreign functions or operators), and whether row-level
-- security is on, and applies to this user.
WITH tables(position, id) AS (
  VALUES (1, to_regclass($1)), (2, to_regclass($2)), (3, to_regclass($3))
), described AS (
  SELECT position, id IS NOT NULL AS exists,
    COALESCE((SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ',' ORDER BY attname)
      FROM pg_attribute WHERE attrelid = id AND attnum > 0 AND NOT attisdropped), '') AS columns,
    COALESCE((SELECT string_agg(CASE WHEN indisunique THEN 'unique ' ELSE '' END || (
          SELECT string_agg(attname, '+' ORDER BY ordinality)
          FROM unnest(indkey::int2[]) WITH ORDINALITY AS key(number, ordinality)
          JOIN pg_attribute ON attrelid = indrelid AND attnum = key.number), ',')
      FROM pg_index WHERE indrelid = id AND indisvalid AND indpred IS NULL), '') AS indexes,
    COALESCE((SELECT string_agg(privilege, ', ')
      FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
      WHERE id IS NOT NULL AND NOT has_table_privilege(id, privilege)), '') AS refused,
    COALESCE((SELECT string_agg(attached, ', ' ORDER BY attached) FROM (
        SELECT 'trigger ' || quote_ident(tgname) FROM pg_trigger WHERE tgrelid = id AND NOT tgisinternal
        UNION ALL
        SELECT 'rule ' || quote_ident(rulename) FROM pg_rewrite WHERE ev_class = id
        UNION ALL
        SELECT 'the type of column ' || quote_ident(attname) FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
        WHERE attrelid = id AND attnum > 0 AND NOT attisdropped AND typnamespace <> 'pg_catalog'::regnamespace
        UNION ALL
        SELECT 'child table ' || inhrelid::regclass::text FROM pg_inherits WHERE inhparent = id
        UNION
        SELECT pg_describe_object(of_table.classid, of_table.objid, 0)
        FROM pg_depend AS of_table JOIN pg_depend AS calls ON calls.classid = of_table.classid AND calls.objid = of_table.objid
        WHERE of_table.refclassid = 'pg_class'::regclass AND of_table.refobjid = id
          AND of_table.classid NOT IN ('pg_trigger'::regclass, 'pg_rewrite'::regclass)
          AND calls.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
      ) AS those(attached)), '') AS attached,
    COALESCE((SELECT CASE WHEN row_security_active(id) THEN 'active' WHEN relrowsecurity THEN 'on' END
      FROM pg_class WHERE pg_class.oid = id), '') AS row_security
  FROM tables
), open_schemas AS (
  SELECT COALESCE(string_agg(quote_ident(nspname), ', '), '') AS names
  FROM unnest(current_setting('syncguard.search_path')::text[]) AS schema
  JOIN pg_namespace ON nspname = schema
  WHERE EXISTS (SELECT FROM aclexplode(COALESCE(nspacl, acldefault('n', nspowner)))
    LEFT JOIN pg_roles ON pg_roles.oid = grantee
    WHERE privilege_type = 'CREATE' AND grantee <> nspowner AND rolsuper IS DISTINCT FROM true
      AND rolname IS DISTINCT FROM current_user)
)
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
  current_setting('server_version'), current_setting('server_version_num')::int,
  pg_is_in_recovery(), current_setting('default_transaction_read_only'),
  current_setting('default_transaction_isolation'), current_setting('synchronous_commit'), current_setting('fsync'),
  exists, columns, indexes, refused, attached, names, current_setting('server_encoding'),
  (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'), row_security
FROM described, open_schemas ORDER BY position

-- name: advisory_locks
-- Sessions that hold an advisory lock of the kind that operations hold briefly: the process, its role and the lock.
SELECT coalesce(pid, 0), coalesce(usename, ''), classid, objid
FROM pg_locks LEFT JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid::bigint IN (0, 4294967295)
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND pid IS DISTINCT FROM pg_backend_pid()

-- name: highest_counter
-- The highest of at most 100,000 fence counters, and whether those are all.
SELECT coalesce(max(fence), 0), count(*) < 100000 FROM (SELECT fence FROM {counters} LIMIT 100000) AS counters
