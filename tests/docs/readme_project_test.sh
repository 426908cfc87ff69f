#!/bin/sh
# Configures the README's CMakeLists.txt and main.cpp with this repository next to them. Other tests build the same:
# tests/consumer/fetch_content, and Docs.ReadmeProgram, which runs the README's program.
# usage: readme_project_test.sh README REPOSITORY CMAKE [OPTION OF CMAKE]...
set -eu
readme=$1
repository=$2
cmake=$3
shift 3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The first block of the given kind.
block() { awk -v begin="^\`\`\`$1\$" '/^```/ { if (inside) exit } inside { print } $0 ~ begin { inside = 1 }' "$readme"; }
block cmake >"$folder/CMakeLists.txt"
block 'cpp program' >"$folder/main.cpp"
for file in CMakeLists.txt main.cpp; do
  [ -s "$folder/$file" ] || { echo "readme_project_test: no $file in $readme" >&2; exit 1; }
done
ln -s "$repository" "$folder/syncguard"
"$cmake" -S "$folder" -B "$folder/build" "$@"
