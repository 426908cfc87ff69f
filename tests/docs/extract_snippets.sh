#!/bin/sh
# Turns the C++ snippets of documents into one source file, so that all of them are compiled.
# usage: extract_snippets.sh OUTPUT DOCUMENT...
# A block marked ```cpp becomes a function, one marked ```cpp coroutine a coroutine, and one marked ```cpp file is put into a
# namespace unchanged. extract_program.sh handles blocks marked ```cpp program.
set -eu
output=$1
shift
awk '
  function finish() {
    if (kind == "file") functions = functions "namespace snippet_" count " {\n" body "}\n\n"
    else if (kind == "coroutine") functions = functions "[[maybe_unused]] asio::awaitable<void> snippet_" count "() {\n" body "}\n\n"
    else functions = functions "[[maybe_unused]] void snippet_" count "() {\n" body "}\n\n"
  }
  /^```/ && inside { inside = 0; finish(); next }
  /^```cpp program/ { other = 1; next }
  /^```/ { other = 0 }
  other { next }
  /^```cpp/ { inside = 1; count++; kind = $2; body = "#line " FNR + 1 " \"" FILENAME "\"\n"; next }
  inside && /^#include/ { includes = includes $0 "\n"; body = body "\n"; next }
  inside { body = body $0 "\n" }
  END {
    if (count == 0) { print "no snippet found" > "/dev/stderr"; exit 1 }
    printf "// Made by extract_snippets.sh: do not edit.\n%s#include \"docs/prelude.hpp\"\n\nnamespace {\n\n%s}  // namespace\n", includes, functions
  }
' "$@" >"$output"
