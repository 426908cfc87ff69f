#!/bin/sh
# Usage: misuse_test.sh MACRO SOURCE COMPILER FLAGS...
# Succeeds if the source does not compile with this macro, with the message in the comment `// error: MESSAGE` after it.
macro=$1
source=$2
shift 2

expected=$(sed -n "/^#ifdef $macro\$/,/^#else\$/s,.*// error: ,,p" "$source")
if [ -z "$expected" ]; then
  echo "no expected message for $macro in $source"
  exit 1
fi
if output=$("$@" "-D$macro" -fsyntax-only "$source" 2>&1); then
  echo "it compiled; expected: $expected"
  exit 1
fi
if ! printf '%s\n' "$output" | grep -Eq "error: .*($expected)"; then
  printf '%s\nexpected: %s\n' "$output" "$expected"
  exit 1
fi
