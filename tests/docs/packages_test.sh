#!/bin/sh
# docs/building.md lists the Debian packages that ./dev installs, and every CMake option.
# usage: packages_test.sh REPOSITORY
set -eu
cd "$1"
failed=0
complain() {
  echo "packages_test: $*" >&2
  failed=1
}
for group in core sqlite redis postgres firestore command; do
  packages=$(./dev packages "$group" | sed 's/^[a-z]*: //')
  grep -qF "\`$packages\`" docs/building.md || complain "docs/building.md does not name \`$packages\` ($group)"
done
options=$(sed -nE -e 's/^(option|syncguard_option_if)\((SYNCGUARD_[A-Z_]+) .*/\2/p' CMakeLists.txt
  sed -nE -e 's/^syncguard_backend\(([a-z]+) .*/SYNCGUARD_\U\1/p' CMakeLists.txt)
[ -n "$options" ] || complain "found no options in CMakeLists.txt"
for option in $options; do
  grep -qF "\`$option\`" docs/building.md || complain "docs/building.md does not name $option"
done
exit $failed
