#!/usr/bin/env bash
# The installed headers include each other, the standard library and, for what is asynchronous, Asio: installed_headers.sh PREFIX
# (The contract suite's is for authors of tests, and includes GoogleTest.)
set -euo pipefail
cd "$1/include"

headers=$(find . -name '*.hpp' | sort)
for needed in ./syncguard/syncguard.hpp ./syncguard/async.hpp ./syncguard/version.hpp; do
  grep -qxF "$needed" <<<"$headers" || { echo "not installed: $needed" >&2; exit 1; }
done

status=0
while read -r header; do
  allowed='<(syncguard/[a-z_/]+\.hpp|[a-z_]+)>'
  case $header in
    ./syncguard/async.hpp | ./syncguard/backend.hpp) allowed='<((syncguard|asio)/[a-z_/]+\.hpp|[a-z_]+)>' ;;
    ./syncguard/testing/contract_suite.hpp) allowed='<(syncguard/[a-z_/]+\.hpp|gtest/gtest\.h|[a-z_]+)>' ;;
  esac
  foreign=$(grep -E '^ *# *include' "$header" | grep -vE "^#include $allowed\$" || true)
  if [ -n "$foreign" ]; then
    printf '%s: %s\n' "$header" "$foreign" >&2
    status=1
  fi
done <<<"$headers"
exit $status
