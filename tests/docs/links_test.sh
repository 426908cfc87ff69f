#!/bin/sh
# Every link of a document that leads into the repository leads to something.
# usage: links_test.sh DOCUMENT...
set -eu
broken=0
for document in "$@"; do
  # Code is no text: what looks like a link there is none.
  targets=$(awk '/^```/ { inside = !inside; next } !inside' "$document" | sed 's/`[^`]*`//g' |
    grep -o '](\([^)]*\))' | sed 's/^](//; s/)$//; s/#.*//') || continue
  for target in $targets; do
    case $target in http://* | https://*) continue ;; esac
    if [ ! -e "$(dirname "$document")/$target" ]; then
      echo "$document: $target is not there" >&2
      broken=1
    fi
  done
done
exit "$broken"
