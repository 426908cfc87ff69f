#!/bin/sh
# Extracts the block marked ```cpp program from a document.
# usage: extract_program.sh OUTPUT DOCUMENT
set -eu
awk '/^```/ { inside = 0 } inside { print } /^```cpp program/ { inside = 1; print "#line " FNR + 1 " \"" FILENAME "\"" }' "$2" >"$1"
[ -s "$1" ] || { echo "extract_program: no program in $2" >&2; exit 1; }
