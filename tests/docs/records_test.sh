#!/bin/sh
# The index lists every decision record.
# usage: records_test.sh FOLDER
set -eu

missing=0
for record in "$1"/[0-9]*.md; do
  grep -qF "($(basename "$record"))" "$1/README.md" || {
    echo "$1/README.md does not list $(basename "$record")" >&2
    missing=1
  }
done
exit "$missing"
