#!/usr/bin/env bash
# The installed headers include only each other, the standard library and, in the asynchronous ones, Asio. The header of the
# contract suite also includes GoogleTest.
# usage: installed_headers.sh PREFIX
set -euo pipefail
cd "$1/include"

headers=$(find . -name '*.hpp' | sort)
for needed in ./syncguard/syncguard.hpp ./syncguard/async.hpp ./syncguard/version.hpp; do
  grep -qxF "$needed" <<<"$headers" || { echo "not installed: $needed" >&2; exit 1; }
done

status=0
while read -r header; do
  # Doxygen leaves out what a header says without this.
  [ "$(head -n 1 "$header")" = '/// \file' ] || { echo "$header: does not begin with '/// \file'" >&2; status=1; }
  allowed='<(syncguard/[a-z_/]+\.hpp|[a-z_]+)>'
  case $header in
    ./syncguard/async.hpp | ./syncguard/backend.hpp | ./syncguard/forwarding_backend.hpp | ./syncguard/wait_ticket.hpp | \
      ./syncguard/detail/asio_version.hpp | ./syncguard/detail/immediate_executor.hpp)
      allowed='<((syncguard|asio)/[a-z_/]+\.hpp|[a-z_]+)>' ;;
    ./syncguard/testing/contract_suite.hpp) allowed='<(syncguard/[a-z_/]+\.hpp|gtest/gtest\.h|[a-z_]+)>' ;;
  esac
  foreign=$(grep -E '^ *# *include' "$header" | grep -vE "^#include $allowed\$" || true)
  if [ -n "$foreign" ]; then
    printf '%s: %s\n' "$header" "$foreign" >&2
    status=1
  fi
done <<<"$headers"
exit $status
