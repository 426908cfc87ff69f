#include <syncguard/error.hpp>
#include <syncguard/lock_id.hpp>

#include "core/base64url.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace syncguard {
namespace {

constexpr std::size_t entropy_bytes = 16;

}  // namespace

LockId LockId::generate() {
  std::array<unsigned char, entropy_bytes> bytes{};
  // Up to 256 bytes getrandom never returns less than asked, but a signal may come before the pool is first ready.
  ssize_t got = 0;
  do {
    got = getrandom(bytes.data(), bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(bytes.size())) {
    throw LockError(ErrorCode::internal,
                    "the operating system gave no randomness: " + std::generic_category().message(errno));
  }
  return LockId(core::base64url(bytes));
}

bool LockId::is_valid(std::string_view text) noexcept {
  return text.size() == length &&
         std::ranges::all_of(text, [](char c) { return core::base64url_alphabet.find(c) != std::string_view::npos; });
}

LockId::LockId(std::string_view text) {
  if (!is_valid(text)) {
    throw LockError(ErrorCode::invalid_argument, "a lock id has exactly 22 characters of A-Z, a-z, 0-9, _ and -");
  }
  std::ranges::copy(text, text_.begin());
}

}  // namespace syncguard
