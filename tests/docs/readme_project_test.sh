#!/bin/sh
# Configures the CMakeLists.txt of docs/building.md and the main.cpp of README.md with this repository next to them. Other tests
# build the same: tests/consumer/fetch_content, and Docs.ReadmeProgram, which runs the README's program.
# usage: readme_project_test.sh REPOSITORY CMAKE [OPTION OF CMAKE]...
set -eu
repository=$1
cmake=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The first block of the given kind in a document.
block() { awk -v begin="^\`\`\`$1\$" '/^```/ { if (inside) exit } inside { print } $0 ~ begin { inside = 1 }' "$repository/$2"; }
block cmake docs/building.md >"$folder/CMakeLists.txt"
block 'cpp program' README.md >"$folder/main.cpp"
for file in CMakeLists.txt main.cpp; do
  [ -s "$folder/$file" ] || { echo "readme_project_test: the documents have no $file" >&2; exit 1; }
done
ln -s "$repository" "$folder/syncguard"
"$cmake" -S "$folder" -B "$folder/build" "$@"
