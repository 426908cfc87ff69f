#!/usr/bin/env bash
# A shared library exports only the API, in the inline namespace of its version, and the few objects of Asio that must exist once per
# process:
#   exported_symbols.sh LIBRARY NAMESPACE [SONAME]
set -euo pipefail
library=$1 namespace=syncguard::$2

symbols=$(nm --dynamic --defined-only --demangle "$library" | cut -d ' ' -f 3-)
# Prefixes in demangled names of symbols that belong to a class.
of='(typeinfo for |typeinfo name for |vtable for |guard variable for )?'
foreign=$(grep -vE "^$of($namespace|asio)::" <<<"$symbols" || true)
if [ -n "$foreign" ]; then
  printf 'exported, but not our API:\n%s\n' "$foreign" >&2
  exit 1
fi
for needed in "$namespace::open(" "$namespace::detail::perform(" "typeinfo for $namespace::LockError" \
  'asio::system_category()::instance'; do
  if ! grep -qF "$needed" <<<"$symbols"; then
    echo "not exported: $needed" >&2
    exit 1
  fi
done

if [ -n "${3:-}" ] && ! readelf --dynamic "$library" | grep -qF "Library soname: [$3]"; then
  echo "the SONAME is not $3" >&2
  exit 1
fi
