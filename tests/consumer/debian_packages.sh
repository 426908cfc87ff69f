#!/usr/bin/env bash
# Creates the Debian packages of a build, checks their contents, unpacks them and runs the command:
#   debian_packages.sh BUILD FOLDER
# Afterwards, FOLDER/root contains what an installation of the packages would.
set -euo pipefail
build=$1 folder=$2

rm -rf "$folder"
mkdir -p "$folder"
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$folder" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }

fail() {
  echo "$*" >&2
  exit 1
}

# expect_field PACKAGE FIELD PATTERN
expect_field() {
  local value
  value=$(dpkg-deb -f "$folder/$1"_*.deb "$2")
  grep -qE "$3" <<<"$value" || fail "$1: $2 is '$value', expected $3"
}

expect_file() {
  local files
  files=$(dpkg-deb -c "$folder/$1"_*.deb)
  grep -qE "/$2( -> .*)?\$" <<<"$files" || fail "$1 has no $2"
}

version='[0-9]+\.[0-9]+\.[0-9]+'
library=$(basename "$folder"/libsyncguard[0-9]*.deb)
library=${library%%_*}
for package in "$library" libsyncguard-dev syncguard; do
  expect_field "$package" Package "^$package\$"
  expect_field "$package" Version "^$version\$"
  expect_field "$package" Architecture "^$(dpkg --print-architecture)\$"
  expect_field "$package" Maintainer .
  expect_field "$package" Description '^Distributed locks'
  expect_file "$package" "usr/share/doc/$package/copyright"
done
expect_field "$library" Depends 'libstdc\+\+6'
expect_field "$library" Depends 'libsqlite3-0 \(>= 3\.37\)'
expect_field "$library" Depends 'libssl3'
expect_field libsyncguard-dev Depends "$library \(= $version\)"
expect_field libsyncguard-dev Depends libasio-dev
expect_field syncguard Depends "$library \(= $version\)"
expect_field syncguard Depends libc6

expect_file "$library" 'libsyncguard\.so\.[0-9.]+'
expect_file libsyncguard-dev 'libsyncguard\.so'
expect_file libsyncguard-dev 'include/syncguard/syncguard\.hpp'
expect_file libsyncguard-dev 'cmake/SyncGuard/SyncGuardConfig\.cmake'
expect_file libsyncguard-dev 'pkgconfig/syncguard\.pc'
expect_file libsyncguard-dev 'pkgconfig/syncguard-testing\.pc'
expect_file libsyncguard-dev 'libsyncguard_testing\.a'
expect_file syncguard usr/bin/syncguard
expect_file syncguard usr/share/man/man1/syncguard.1
expect_file syncguard usr/share/bash-completion/completions/syncguard
expect_file syncguard usr/share/zsh/site-functions/_syncguard
expect_file syncguard usr/share/fish/vendor_completions.d/syncguard.fish
# Without ldconfig in postinst, programs would not find the library.
dpkg-deb -e "$folder/$library"_*.deb "$folder/control"
grep -q ldconfig "$folder/control/postinst" || fail "$library does not run ldconfig"

for package in "$folder"/*.deb; do
  dpkg-deb -x "$package" "$folder/root"
done
libraries=$(dirname "$(find "$folder/root" -name 'libsyncguard.so')")
ran=$(LD_LIBRARY_PATH=$libraries "$folder/root/usr/bin/syncguard" --url "sqlite:$folder/locks.db" run --key key -- echo under lock)
[ "$ran" = 'under lock' ] || fail "the command said: $ran"

"$(dirname "$0")/hardening.sh" "$folder/root/usr/bin/syncguard" "$libraries"/libsyncguard.so.*.*
