#include "core/sha256.hpp"

#include <openssl/sha.h>

namespace syncguard::core {

std::array<unsigned char, 32> sha256(std::string_view text) {
  std::array<unsigned char, 32> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

}  // namespace syncguard::core
