#!/bin/sh
# Every test that a document names in a column "tests", the last one of its table, exists. Every row of such a table names a test, and none of
# its cells is empty.
# usage: feature_table_test.sh DOCUMENT CTEST BUILD_FOLDER [SKIPPED_PREFIX]
set -eu
tests=$(basename "$1").tests.txt
"$2" --test-dir "$3" -N | sed -n 's/^ *Test *#[0-9]*: //p' >"$tests"
[ -s "$tests" ] || { echo "feature_table_test: there are no tests" >&2; exit 1; }
names=$(basename "$1").txt
awk -F '|' '!/^\|/ { inside = 0; next } $(NF - 1) == " tests " { inside = 1 } inside { print $(NF - 1) }' "$1" |
  grep -o '`[^`]*`' | tr -d '`' >"$names"
[ "$(wc -l <"$names")" -gt 10 ] || { echo "feature_table_test: cannot find the tests in $1" >&2; exit 1; }
missing=0
awk -F '|' '
  !/^\|/ { inside = 0; next }
  $(NF - 1) == " tests " { inside = FNR }
  !inside { next }
  { for (i = 2; i < NF; i++) if ($i ~ /^ *$/) { print FILENAME ":" FNR ": an empty cell"; found = 1 } }
  # The first two lines are the names of the columns and the line below them.
  FNR > inside + 1 && $(NF - 1) !~ /`/ { print FILENAME ":" FNR ": no test"; found = 1 }
  END { exit found }' "$1" >&2 || missing=1
while read -r name; do
  case $name in *"${4:-nothing}"*) continue ;; esac
  found=
  while read -r test; do
    # shellcheck disable=SC2254  # the name is a pattern
    case $test in $name) found=yes && break ;; esac
  done <"$tests"
  if [ -z "$found" ]; then
    echo "$1 names $name, but there is no such test" >&2
    missing=1
  fi
done <"$names"
exit "$missing"
