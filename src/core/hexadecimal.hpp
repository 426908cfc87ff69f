// Bytes as lower-case hexadecimal digits, two each.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace syncguard::core {

inline std::string hexadecimal(std::span<const unsigned char> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const auto byte : bytes) {
    text += digits[byte >> 4U];
    text += digits[byte & 0xfU];
  }
  return text;
}

}  // namespace syncguard::core
