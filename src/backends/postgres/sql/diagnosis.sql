-- $1, $2, $3: the names of the tables. What there is to know about the server, and about each table: its columns with their
-- types, its valid indexes with their columns, and what this user may not do with it.
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
      WHERE id IS NOT NULL AND NOT has_table_privilege(id, privilege)), '') AS refused
  FROM tables
)
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
  current_setting('server_version'), current_setting('server_version_num')::int,
  pg_is_in_recovery(), current_setting('default_transaction_read_only'),
  current_setting('default_transaction_isolation'), current_setting('synchronous_commit'), current_setting('fsync'),
  exists, columns, indexes, refused
FROM described ORDER BY position
