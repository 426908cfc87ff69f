#!/bin/sh
# Runs the script of docs/fencing.md on a real Redis, as its text says.
# usage: lua_test.sh DOCUMENT
set -eu
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill "$server"; wait "$server" || true; }; rm -rf "$folder"' EXIT
awk '/^```/ { inside = 0 } inside { print } /^```lua/ { inside = 1 }' "$1" >"$folder/script.lua"
[ -s "$folder/script.lua" ] || { echo "lua_test: no script in $1" >&2; exit 1; }

# By a Unix socket no port has to be free.
redis-server --port 0 --unixsocket "$folder/socket" --save '' --dir "$folder" >"$folder/log" &
server=$!
tries=0
until redis-cli -s "$folder/socket" ping >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || { cat "$folder/log" >&2; exit 1; }
  sleep 0.1
done

# VALUE FENCE EXPECTED
write() {
  answer=$(redis-cli -s "$folder/socket" --eval "$folder/script.lua" profile:7 , "$1" "$2")
  [ "$answer" = "$3" ] || { echo "lua_test: $1 with fence $2 gave $answer" >&2; exit 1; }
}
write first 000000000000009 1
write again 000000000000009 1
write next 000000000000010 1
write late 000000000000009 0
[ "$(redis-cli -s "$folder/socket" hget profile:7 value)" = next ] || { echo "lua_test: an old holder wrote" >&2; exit 1; }
