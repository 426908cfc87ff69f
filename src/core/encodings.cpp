#include "core/encodings.hpp"

#include "core/openssl.hpp"

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

// An algorithm of OpenSSL. Never freed: static objects may release locks while the process exits.
const EVP_MD* fetch(const char* name) {
  init_openssl();
  const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, name, nullptr);
  if (algorithm == nullptr) throw LockError(ErrorCode::internal, std::string("OpenSSL does not provide ") + name);
  return algorithm;
}

template <std::size_t size>
std::array<unsigned char, size> hash(std::string_view text, const EVP_MD* algorithm) {
  std::array<unsigned char, size> digest{};
  if (EVP_Digest(text.data(), text.size(), digest.data(), nullptr, algorithm, nullptr) != 1) {
    throw LockError(ErrorCode::internal, "OpenSSL cannot compute a hash");
  }
  return digest;
}

}  // namespace

// The algorithms are fetched once: fetching takes longer than hashing a short text.

std::array<unsigned char, 32> sha256(std::string_view text) {
  static const EVP_MD* const algorithm = fetch("SHA256");
  return hash<32>(text, algorithm);
}

std::array<unsigned char, 20> sha1(std::string_view text) {
  static const EVP_MD* const algorithm = fetch("SHA1");
  return hash<20>(text, algorithm);
}

}  // namespace syncguard::core
