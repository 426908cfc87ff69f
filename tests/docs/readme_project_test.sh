#!/bin/sh
# Configures the CMakeLists.txt of docs/building.md and the main.cpp of README.md with this repository next to them, then with a clone of it,
# as the page describes. Other tests build the same: tests/consumer/fetch_content, and Docs.ReadmeProgram, which runs the README's program.
# usage: readme_project_test.sh REPOSITORY CMAKE [OPTION OF CMAKE]...
set -eu
repository=$1
cmake=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# block KIND DOCUMENT [NUMBER]: a block of the given kind, by default the first one.
block() {
  awk -v begin="^\`\`\`$1\$" -v number="${3:-1}" \
    '/^```/ { if (inside) exit } inside { print } $0 ~ begin { inside = ++count == number }' "$repository/$2"
}
block cmake docs/building.md >"$folder/CMakeLists.txt"
block 'cpp program' README.md >"$folder/main.cpp"
for file in CMakeLists.txt main.cpp; do
  [ -s "$folder/$file" ] || { echo "readme_project_test: the documents have no $file" >&2; exit 1; }
done
ln -s "$repository" "$folder/syncguard"
"$cmake" -S "$folder" -B "$folder/build" "$@"

# A server's repository has the branch main, whatever is checked out here.
tar -C "$repository" --exclude=./build --exclude=./.git -cf - . | (mkdir "$folder/server" && tar -C "$folder/server" -xf -)
git -C "$folder/server" init --quiet --initial-branch=main
git -C "$folder/server" add --all
git -C "$folder/server" -c user.name=test -c user.email=test@localhost commit --quiet --message=all
rm "$folder/syncguard"
clone=$(block cmake docs/building.md 2)
case $clone in FetchContent_Declare*) ;; *) echo "readme_project_test: building.md does not show how to clone" >&2; exit 1 ;; esac
sed "s|^FetchContent_Declare.*|$clone|" "$folder/CMakeLists.txt" >"$folder/changed"
mv "$folder/changed" "$folder/CMakeLists.txt"
"$cmake" -S "$folder" -B "$folder/cloned" "-DSYNCGUARD_REPOSITORY=file://$folder/server" "$@"
