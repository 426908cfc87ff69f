#!/usr/bin/env bash
# A shared library exports our API, the little of Asio that must be one in a process, and nothing else:
#   exported_symbols.sh LIBRARY [SONAME]
set -euo pipefail
library=$1

symbols=$(nm --dynamic --defined-only --demangle "$library" | cut -d ' ' -f 3-)
# For what belongs to a class the demangled name says first what it is; a template begins with its result.
of='(typeinfo for |typeinfo name for |vtable for |guard variable for )?'
foreign=$(grep -vE "^$of(syncguard|asio)::" <<<"$symbols" || true)
if [ -n "$foreign" ]; then
  printf 'exported, but not our API:\n%s\n' "$foreign" >&2
  exit 1
fi
# Namespaces that no public header has.
internal=$(grep -E "^${of}syncguard::(async|core|firestore|net|postgres|redis|sqlite|memory)::" <<<"$symbols" || true)
if [ -n "$internal" ]; then
  printf 'exported, but internal:\n%s\n' "$internal" >&2
  exit 1
fi
for needed in 'syncguard::open(' 'syncguard::detail::acquire(' 'typeinfo for syncguard::LockError' \
  'asio::system_category()::instance'; do
  if ! grep -qF "$needed" <<<"$symbols"; then
    echo "not exported: $needed" >&2
    exit 1
  fi
done

if [ -n "${2:-}" ] && ! readelf --dynamic "$library" | grep -qF "Library soname: [$2]"; then
  echo "the SONAME is not $2" >&2
  exit 1
fi
