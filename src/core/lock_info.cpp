#include <syncguard/lock_info.hpp>

#include "core/encodings.hpp"
#include "core/validation.hpp"

namespace syncguard {
inline namespace v0_1 {

std::string hash_key(std::string_view value) {
  constexpr std::size_t hashed_bytes = 12;
  const auto normal_form = core::to_nfc(value);
  const auto digest = core::sha256(normal_form ? std::string_view(*normal_form) : value);
  return core::hexadecimal(std::span(digest).first(hashed_bytes));
}

LockInfo sanitize(const LockRecord& record) {
  return {.key_hash = hash_key(record.key.str()),
          .lock_id_hash = hash_key(record.lock_id.view()),
          .expires_at = record.expires_at,
          .acquired_at = record.acquired_at,
          .fence = record.fence,
          .holder = record.holder};
}

}  // namespace v0_1
}  // namespace syncguard
