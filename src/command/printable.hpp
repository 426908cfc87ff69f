// Makes untrusted text (keys, names of schemas, messages of servers) safe to display.
#pragma once

#include <string>
#include <string_view>

namespace syncguard::command {

// Replaces everything that could control a terminal or change the visible order of the text: control characters (C0,
// DEL, C1; line breaks and tabs included), line separators, bidirectional controls, and bytes that are not UTF-8. A
// control character becomes \n, \t, \x1b or \u202e; such a byte becomes \xff. A backslash becomes \\, so that different
// texts look different. Everything else is unchanged.
std::string printable(std::string_view text);

// The same, but keeps line breaks and indents the lines after them, so that none looks like a separate message.
std::string printable_lines(std::string_view text);

}  // namespace syncguard::command
