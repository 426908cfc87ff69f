#include "core/encodings.hpp"

#include <openssl/sha.h>

#include <cstddef>

namespace syncguard::core {

std::string base64url(std::span<const unsigned char> bytes) {
  std::string text;
  text.reserve((bytes.size() * 4 + 2) / 3);
  unsigned pending = 0;
  int pending_bits = 0;
  for (const unsigned char byte : bytes) {
    pending = (pending << 8) | byte;
    pending_bits += 8;
    while (pending_bits >= 6) {
      pending_bits -= 6;
      text += base64url_alphabet[(pending >> pending_bits) & 63U];
    }
  }
  if (pending_bits > 0) text += base64url_alphabet[(pending << (6 - pending_bits)) & 63U];
  return text;
}

std::array<unsigned char, 32> sha256(std::string_view text) {
  std::array<unsigned char, 32> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

}  // namespace syncguard::core
