// Text encodings of bytes, and hashes.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

namespace syncguard::core {

// Base64 with the URL-safe alphabet and no padding.
inline constexpr std::string_view base64url_alphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string base64url(std::span<const unsigned char> bytes);

// Two lowercase digits per byte.
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

// For parts of URLs: every byte except letters, digits and -._~ becomes %XX.
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

std::array<unsigned char, 32> sha256(std::string_view text);
// Only where the text is public, or too random to be guessed.
std::array<unsigned char, 20> sha1(std::string_view text);

}  // namespace syncguard::core
