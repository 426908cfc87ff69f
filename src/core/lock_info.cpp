#include <syncguard/lock_info.hpp>

#include "core/hexadecimal.hpp"
#include "core/sha256.hpp"
#include "core/unicode.hpp"

namespace syncguard {

std::string hash_key(std::string_view value) {
  constexpr std::size_t hashed_bytes = 12;
  const auto normal_form = core::to_nfc(value);
  const auto digest = core::sha256(normal_form ? std::string_view(*normal_form) : value);
  return core::hexadecimal(std::span(digest).first(hashed_bytes));
}

LockInfo sanitise(const LockRecord& record) {
  return {.key_hash = hash_key(record.key.str()),
          .lock_id_hash = hash_key(record.lock_id.view()),
          .expires_at = record.expires_at,
          .acquired_at = record.acquired_at,
          .fence = record.fence};
}

}  // namespace syncguard
