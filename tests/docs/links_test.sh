#!/bin/sh
# Every link of a document to a file or heading in the repository works.
# usage: links_test.sh DOCUMENT...
set -eu
export LC_ALL=C

# The text of a document without its code blocks.
text_of() { awk '/^```/ { inside = !inside; next } !inside' "$1"; }
# The anchors of a page: its headings as GitHub names them, without punctuation, with hyphens for spaces.
anchors_of() {
  text_of "$1" | sed -n 's/^##* //p' | tr 'A-Z ' 'a-z-' | tr -d '!-,./:-@[-^`{-~' | awk '{ print $0 (seen[$0]++ ? "-" seen[$0] - 1 : "") }'
}

broken=0
complain() {
  echo "$1" >&2
  broken=1
}
for document in "$@"; do
  # Inline code does not contain links.
  # shellcheck disable=SC2016  # the backquotes are literal
  targets=$(text_of "$document" | sed 's/`[^`]*`//g' | grep -o '](\([^)]*\))' | sed 's/^](//; s/)$//') || continue
  for target in $targets; do
    case $target in http://* | https://*) continue ;; esac
    page=$document
    case $target in '#'*) ;; *) page=$(dirname "$document")/${target%%#*} ;; esac
    if [ ! -e "$page" ]; then
      complain "$document: $target is not there"
      continue
    fi
    case $target in
      *#*) anchors_of "$page" | grep -qxF -e "${target#*#}" || complain "$document: $target has no such heading" ;;
    esac
  done
done
exit "$broken"
