#include <syncguard/error.hpp>
#include <syncguard/lock_id.hpp>

#include "core/encodings.hpp"
#include "core/random.hpp"

#include <algorithm>

namespace syncguard {
inline namespace v0_1 {

LockId LockId::generate() {
  constexpr std::size_t entropy_bytes = 16;
  return LockId(core::base64url(core::random_bytes<entropy_bytes>()));
}

bool LockId::is_valid(std::string_view text) noexcept {
  const auto is_base64url = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return text.size() == length && std::ranges::all_of(text, is_base64url);
}

LockId::LockId(std::string_view text) {
  if (!is_valid(text)) {
    throw LockError(ErrorCode::invalid_argument, "a lock id must have exactly 22 characters of A-Z, a-z, 0-9, _ and -");
  }
  std::ranges::copy(text, text_.begin());
}

}  // namespace v0_1
}  // namespace syncguard
