#include <syncguard/error.hpp>
#include <syncguard/lock_id.hpp>

#include "core/encodings.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace syncguard {
inline namespace v0_1 {
namespace {

constexpr std::size_t entropy_bytes = 16;

}  // namespace

LockId LockId::generate() {
  std::array<unsigned char, entropy_bytes> bytes{};
  // For up to 256 bytes, getrandom never returns fewer bytes than requested. Before the pool is initialized, a signal
  // may interrupt it.
  ssize_t got = 0;
  do {
    got = getrandom(bytes.data(), bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(bytes.size())) {
    throw LockError(ErrorCode::internal,
                    "the operating system provided no random bytes: " + std::generic_category().message(errno));
  }
  return LockId(core::base64url(bytes));
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
