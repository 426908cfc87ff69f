#!/bin/sh
# While another process holds the lock, the README's program gives up at its timeout: it says so and exits with 1.
# usage: readme_timeout_test.sh PROGRAM SYNCGUARD
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_STATE_HOME="$folder"
unset SYNCGUARD_URL
"$2" acquire report --ttl 10m >"$folder/id"
code=0
said=$("$1" 2>&1) || code=$?
case $code:$said in
  1:AcquisitionTimeout:*) ;;
  *) echo "readme_timeout_test: exit code $code: $said" >&2 && exit 1 ;;
esac
