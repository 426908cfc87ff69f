#!/bin/sh
# The CMakeLists.txt of the README, with its main.cpp and this repository beside it, can be configured. That it can be built is
# shown by tests/consumer/fetch_content, which says the same, and by the README's program, which is built and run.
# usage: readme_project_test.sh README REPOSITORY CMAKE [OPTION OF CMAKE]...
set -eu
readme=$1
repository=$2
cmake=$3
shift 3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The first block of a kind.
block() { awk -v begin="^\`\`\`$1\$" '/^```/ { if (inside) exit } inside { print } $0 ~ begin { inside = 1 }' "$readme"; }
block cmake >"$folder/CMakeLists.txt"
block 'cpp program' >"$folder/main.cpp"
for file in CMakeLists.txt main.cpp; do
  [ -s "$folder/$file" ] || { echo "readme_project_test: no $file in $readme" >&2; exit 1; }
done
ln -s "$repository" "$folder/syncguard"
"$cmake" -S "$folder" -B "$folder/build" "$@"
