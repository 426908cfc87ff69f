// Any bytes as a person sees them: nothing that acts on a terminal, and still telling which bytes they were.

#include "command/printable.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// The next character; a text that is not UTF-8 fails the test.
utf8proc_int32_t take_character(std::string_view& text) {
  utf8proc_int32_t character = -1;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                       static_cast<utf8proc_ssize_t>(text.size()), &character);
  require(length > 0);
  text.remove_prefix(static_cast<std::size_t>(length));
  return character;
}

// By Unicode's own categories, not by the list that is tested.
void require_harmless(std::string_view text) {
  while (!text.empty()) {
    const auto* properties = utf8proc_get_property(take_character(text));
    require(properties->category != UTF8PROC_CATEGORY_CC && properties->category != UTF8PROC_CATEGORY_ZL &&
            properties->category != UTF8PROC_CATEGORY_ZP);
    switch (properties->bidi_class) {
      case UTF8PROC_BIDI_CLASS_LRE:
      case UTF8PROC_BIDI_CLASS_LRO:
      case UTF8PROC_BIDI_CLASS_RLE:
      case UTF8PROC_BIDI_CLASS_RLO:
      case UTF8PROC_BIDI_CLASS_PDF:
      case UTF8PROC_BIDI_CLASS_LRI:
      case UTF8PROC_BIDI_CLASS_RLI:
      case UTF8PROC_BIDI_CLASS_FSI:
      case UTF8PROC_BIDI_CLASS_PDI:
        require(false);
        break;
      default:
        break;
    }
  }
}

std::string taken(std::string_view& text, std::size_t length) {
  require(text.size() >= length);
  std::string digits(text.substr(0, length));
  require(digits.find_first_not_of("0123456789abcdef") == std::string::npos);
  text.remove_prefix(length);
  return digits;
}

// Replaces escapes by the bytes that they stand for.
std::string decoded(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const char first = text.front();
    text.remove_prefix(1);
    if (first != '\\') {
      bytes += first;
      continue;
    }
    require(!text.empty());
    const char kind = text.front();
    text.remove_prefix(1);
    if (kind == '\\') {
      bytes += '\\';
    } else if (kind == 'n') {
      bytes += '\n';
    } else if (kind == 't') {
      bytes += '\t';
    } else if (kind == 'x') {
      bytes += static_cast<char>(std::stoul(taken(text, 2), nullptr, 16));
    } else {
      require(kind == 'u');
      utf8proc_uint8_t encoded[4];
      const auto length = utf8proc_encode_char(static_cast<int>(std::stoul(taken(text, 4), nullptr, 16)), encoded);
      require(length > 0);
      bytes.append(reinterpret_cast<const char*>(encoded), static_cast<std::size_t>(length));
    }
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace syncguard::command;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto shown = printable(text);
  require_harmless(shown);
  require(decoded(shown) == text);

  auto lines = printable_lines(text);
  require(std::ranges::count(lines, '\n') == std::ranges::count(text, '\n'));
  for (auto end = lines.find('\n'); end != std::string::npos; end = lines.find('\n', end)) {
    require(lines.compare(end, 3, "\n  ") == 0);
    lines.erase(end, 3);
  }
  require_harmless(lines);
  return 0;
}
