#include <syncguard/error.hpp>
#include <syncguard/key.hpp>

#include "core/validation.hpp"

namespace syncguard {
inline namespace v0_1 {

Key::Key(Normalized, std::string_view text) {
  // Canonical composition never shrinks text to less than an eighth. Longer input cannot become a valid key, so do not
  // spend time on normalizing it.
  constexpr std::size_t max_input_bytes = 8 * max_bytes;
  if (text.size() > max_input_bytes) {
    throw LockError(ErrorCode::invalid_argument, "a key must have at most 512 bytes");
  }
  auto normal_form = core::to_nfc(text);
  if (!normal_form) throw LockError(ErrorCode::invalid_argument, "a key must be valid UTF-8");
  if (normal_form->empty()) throw LockError(ErrorCode::invalid_argument, "a key must not be empty");
  if (normal_form->size() > max_bytes) {
    throw LockError(ErrorCode::invalid_argument, "a key must have at most 512 bytes (in Unicode normalization form C)");
  }
  if (normal_form->find('\0') != std::string::npos) {
    throw LockError(ErrorCode::invalid_argument, "a key must not contain a NUL character");
  }
  text_ = std::move(*normal_form);
}

}  // namespace v0_1
}  // namespace syncguard
