-- $1, $2, $3: the names of the tables. Whether the first two are there and different, and whether the third can be used.
SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL,
  CASE WHEN to_regclass($3) IS NULL THEN false ELSE has_table_privilege($3, 'SELECT')
    AND has_table_privilege($3, 'INSERT') AND has_table_privilege($3, 'UPDATE') AND has_table_privilege($3, 'DELETE') END,
  to_regclass($1) IS DISTINCT FROM to_regclass($2)
