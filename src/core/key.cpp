#include <syncguard/error.hpp>
#include <syncguard/key.hpp>

#include "core/unicode.hpp"

namespace syncguard {

Key::Key(Normalised, std::string_view text) {
  // No canonical composition shrinks text to less than an eighth, so that anything longer cannot become a key: do
  // not spend time on normalising it.
  constexpr std::size_t longest_spelling = 8 * max_bytes;
  if (text.size() > longest_spelling) {
    throw LockError(ErrorCode::invalid_argument, "a key has at most 512 bytes");
  }
  auto normal_form = core::to_nfc(text);
  if (!normal_form) throw LockError(ErrorCode::invalid_argument, "a key must be valid UTF-8");
  if (normal_form->empty()) throw LockError(ErrorCode::invalid_argument, "a key must not be empty");
  if (normal_form->size() > max_bytes) {
    throw LockError(ErrorCode::invalid_argument, "a key has at most 512 bytes (in Unicode normalisation form C)");
  }
  if (normal_form->find('\0') != std::string::npos) {
    throw LockError(ErrorCode::invalid_argument, "a key must not contain a NUL character");
  }
  text_ = std::move(*normal_form);
}

}  // namespace syncguard
