#include "command/printable.hpp"

#include <utf8proc.h>

#include <cstdio>

namespace syncguard::command {
namespace {

bool is_harmful(utf8proc_int32_t character) {
  const auto within = [character](utf8proc_int32_t first, utf8proc_int32_t last) {
    return character >= first && character <= last;
  };
  return within(0x00, 0x1f) || character == '\\' || within(0x7f, 0x9f) || character == 0x61c ||
         within(0x200e, 0x200f) || within(0x2028, 0x202e) || within(0x2066, 0x2069);
}

std::string as_byte(unsigned value) {
  char text[16];
  std::snprintf(text, sizeof text, "\\x%02x", value);
  return text;
}

std::string as_character(unsigned value) {
  char text[16];
  std::snprintf(text, sizeof text, "\\u%04x", value);
  return text;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    utf8proc_int32_t character = -1;
    const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                         static_cast<utf8proc_ssize_t>(text.size()), &character);
    if (length <= 0) {
      shown += as_byte(static_cast<unsigned char>(text.front()));
      text.remove_prefix(1);
      continue;
    }
    if (!is_harmful(character)) {
      shown += text.substr(0, static_cast<std::size_t>(length));
    } else if (character == '\\') {
      shown += "\\\\";
    } else if (character == '\n') {
      shown += "\\n";
    } else if (character == '\t') {
      shown += "\\t";
    } else {
      const auto value = static_cast<unsigned>(character);
      shown += value <= 0x7f ? as_byte(value) : as_character(value);
    }
    text.remove_prefix(static_cast<std::size_t>(length));
  }
  return shown;
}

std::string printable_lines(std::string_view text) {
  std::string shown;
  for (;;) {
    const auto end = text.find('\n');
    shown += printable(text.substr(0, end));
    if (end == std::string_view::npos) return shown;
    shown += "\n  ";
    text.remove_prefix(end + 1);
  }
}

}  // namespace syncguard::command
