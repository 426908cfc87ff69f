#!/bin/sh
# Every test that the README's table of features names is there.
# usage: feature_table_test.sh README CTEST BUILD_FOLDER [SKIPPED_PREFIX]
set -eu
"$2" --test-dir "$3" -N | sed -n 's/^ *Test *#[0-9]*: //p' >tests.txt
[ -s tests.txt ] || { echo "feature_table_test: there are no tests" >&2; exit 1; }
awk '/^## / { inside = /the test that shows it/ } inside && /^\|/ { print }' "$1" | awk -F '|' '{ print $(NF - 1) }' |
  grep -o '`[^`]*`' | tr -d '`' >names.txt
[ "$(wc -l <names.txt)" -gt 20 ] || { echo "feature_table_test: the table is not where it was" >&2; exit 1; }
missing=0
while read -r name; do
  case $name in *"${4:-nothing}"*) continue ;; esac
  found=
  while read -r test; do
    # shellcheck disable=SC2254  # the name is a pattern
    case $test in $name) found=yes && break ;; esac
  done <tests.txt
  if [ -z "$found" ]; then
    echo "the README names $name, but there is no such test" >&2
    missing=1
  fi
done <names.txt
exit "$missing"
