#!/usr/bin/env bash
# A program that was compiled with the headers of another version does not link with this library, and a process can load both versions,
# because they have no symbol in common:
#   other_version.sh LIBRARY NAMESPACE COMPILER INCLUDE_FOLDER...
# NAMESPACE is the inline namespace of this version.
set -euo pipefail
library=$1 namespace=$2 compiler=$3
shift 3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/main.cpp" <<'END'
#include <syncguard/memory.hpp>
#include <syncguard/syncguard.hpp>

int main() {
  try {
    syncguard::Locks locks(syncguard::make_memory_backend());
    return locks.try_acquire("key")->fence() == syncguard::Fence() ? 1 : 0;
  } catch (const syncguard::LockError&) {
    return 1;
  }
}
END

# The symbols that the program needs if the headers have the given namespace.
needed() {
  mkdir "$folder/$1"
  for include in "${@:2}"; do cp -r "$include/." "$folder/$1"; done
  find "$folder/$1" -name '*.hpp' -exec sed -i "s/\b$namespace\b/$1/g" {} +
  "$compiler" -std=c++20 -I "$folder/$1" -c "$folder/main.cpp" -o "$folder/$1.o"
  nm --undefined-only "$folder/$1.o" | awk '$2 ~ /9syncguard/ { print $2 }' | sort
}

nm --dynamic --defined-only "$library" | awk '{ print $3 }' | sort >"$folder/exported"
needed "$namespace" "$@" >"$folder/same"
needed another_version "$@" >"$folder/other"

missing=$(comm -23 "$folder/same" "$folder/exported")
common=$(comm -12 "$folder/other" "$folder/exported")
if [ ! -s "$folder/same" ] || [ -n "$missing" ]; then
  printf 'not exported:\n%s\n' "$missing" >&2
  exit 1
fi
if [ ! -s "$folder/other" ] || [ -n "$common" ]; then
  printf 'the same in another version:\n%s\n' "$common" >&2
  exit 1
fi
