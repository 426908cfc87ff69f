#include "core/encodings.hpp"

#include <syncguard/error.hpp>

#include <openssl/evp.h>

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

namespace {

[[noreturn]] void refuse_hash() { throw LockError(ErrorCode::internal, "OpenSSL cannot compute a SHA-256 hash"); }

const EVP_MD* fetch_sha256() {
  const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  if (algorithm == nullptr) refuse_hash();
  return algorithm;
}

}  // namespace

std::array<unsigned char, 32> sha256(std::string_view text) {
  // Fetched once: fetching takes longer than hashing a short text.
  static const EVP_MD* const algorithm = fetch_sha256();
  std::array<unsigned char, 32> digest{};
  if (EVP_Digest(text.data(), text.size(), digest.data(), nullptr, algorithm, nullptr) != 1) refuse_hash();
  return digest;
}

}  // namespace syncguard::core
