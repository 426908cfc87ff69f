# Doxygen reads only its own kind of comment. This makes one of each of ours that says something about what follows it (or,
# at the end of a line, about what stands there), line by line, so that its messages name the right lines.

# Between quotes, and between backquotes, Doxygen leaves everything as it is.
function escaped(text,    i, character, quote, result) {
  for (i = 1; i <= length(text); ++i) {
    character = substr(text, i, 1)
    if (quote == "" && character ~ /[`"]/) {
      quote = character
    } else if (character == quote) {
      quote = ""
    } else if (quote == "" && character ~ /[\\@<>#%$&]/) {
      character = "\\" character
    }
    result = result character
  }
  return result
}

function flush(documents,    i, text) {
  for (i = 1; i <= lines; ++i) {
    text = block[i]
    match(text, /^ *\/\//)
    print documents ? substr(text, 1, RLENGTH) "/" escaped(substr(text, RLENGTH + 1)) : text
  }
  lines = 0
}

/^ *\/\/($|[^\/!])/ { block[++lines] = $0; next }
# What opens a file is about the file.
/^#pragma once$/ { documents_file = lines > 0; flush(1); print documents_file ? "/// \\file" : ""; next }
/^ *$/ { flush(0); print; next }
{
  flush(1)
  if (match($0, /[,;] +\/\/ /) && $0 !~ /^ *}/) {
    print substr($0, 1, RSTART) " ///< " escaped(substr($0, RSTART + RLENGTH))
  } else {
    print
  }
}
END { flush(0) }
