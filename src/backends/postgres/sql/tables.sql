-- $1, $2, $3: the names of the tables. Which of them are there, and whether all of them are different.
SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL, to_regclass($3) IS NOT NULL,
  to_regclass($1) IS DISTINCT FROM to_regclass($2)
