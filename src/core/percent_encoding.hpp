// Text as it is written in parts of URLs.
#pragma once

#include <string>
#include <string_view>

namespace syncguard::core {

// All but letters, digits and -._~ becomes %XX.
inline std::string percent_encoded(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '~';
    if (plain) {
      result += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    result += '%';
    result += digits[byte >> 4U];
    result += digits[byte & 0xfU];
  }
  return result;
}

}  // namespace syncguard::core
