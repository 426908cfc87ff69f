#include <syncguard/lock_info.hpp>

#include "core/sha256.hpp"
#include "core/unicode.hpp"

namespace syncguard {

std::string hash_key(std::string_view value) {
  constexpr std::size_t hashed_bytes = 12;
  constexpr std::string_view hex = "0123456789abcdef";
  const auto normal_form = core::to_nfc(value);
  const auto digest = core::sha256(normal_form ? std::string_view(*normal_form) : value);
  std::string text;
  text.reserve(2 * hashed_bytes);
  for (std::size_t i = 0; i < hashed_bytes; ++i) {
    text += hex[digest[i] >> 4U];
    text += hex[digest[i] & 15U];
  }
  return text;
}

LockInfo sanitise(const LockRecord& record) {
  return {.key_hash = hash_key(record.key.str()),
          .lock_id_hash = hash_key(record.lock_id.view()),
          .expires_at = record.expires_at,
          .acquired_at = record.acquired_at,
          .fence = record.fence};
}

}  // namespace syncguard
