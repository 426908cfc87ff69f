#!/bin/sh
# Runs the Lua script of docs/fencing.md on a real Redis, as the document describes.
# usage: lua_test.sh DOCUMENT
set -eu
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill "$server"; wait "$server" || true; }; rm -rf "$folder"' EXIT
awk '/^```/ { inside = 0 } inside { print } /^```lua/ { inside = 1 }' "$1" >"$folder/script.lua"
[ -s "$folder/script.lua" ] || { echo "lua_test: no script in $1" >&2; exit 1; }

# With a Unix socket, no free port is needed.
redis-server --port 0 --unixsocket "$folder/socket" --save '' --dir "$folder" >"$folder/log" &
server=$!
tries=0
until redis-cli -s "$folder/socket" ping >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || { cat "$folder/log" >&2; exit 1; }
  sleep 0.1
done

# run EXPECTED FENCE [VALUE]
run() {
  expected=$1
  shift
  answer=$(redis-cli -s "$folder/socket" --eval "$folder/script.lua" profile:7 , "$@")
  [ "$answer" = "$expected" ] || { echo "lua_test: $* gave $answer" >&2; exit 1; }
}
expect_value() {
  [ "$(redis-cli -s "$folder/socket" hget profile:7 value)" = "$1" ] || { echo "lua_test: the value is not $1" >&2; exit 1; }
}
run 1 000000000000009
run 1 000000000000009 first
run 1 000000000000009 again
# After the new holder's fence is stored, an old holder is rejected, even before the new holder has written a value.
run 1 000000000000010
run 0 000000000000009 late
run 0 000000000000009
expect_value again
run 1 000000000000010 next
expect_value next
