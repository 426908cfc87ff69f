#include "core/validation.hpp"

#include <syncguard/client_options.hpp>
#include <syncguard/error.hpp>

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

namespace syncguard::core {

void validate_ttl(std::chrono::milliseconds ttl) {
  if (ttl >= min_ttl && ttl <= max_ttl) return;
  const auto text = [](std::chrono::milliseconds limit) { return std::to_string(limit.count()) + " ms"; };
  throw LockError(ErrorCode::invalid_argument, "ttl must be from " + text(min_ttl) + " to " + text(max_ttl));
}

void validate(const WaitOptions& options) {
  const auto require = [](bool holds, const char* message) {
    if (!holds) throw LockError(ErrorCode::invalid_argument, message);
  };
  constexpr std::chrono::milliseconds zero{0};
  require(options.timeout >= zero, "wait.timeout must not be negative");
  require(options.max_retries >= 0, "wait.max_retries must not be negative");
  require(options.retry_delay >= zero, "wait.retry_delay must not be negative");
  require(options.max_delay >= zero, "wait.max_delay must not be negative");
}

bool is_holder(std::string_view text) {
  if (text.size() > ClientOptions::max_holder_bytes) return false;
  const auto* next = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t character = 0;
    const auto length = utf8proc_iterate(next, left, &character);
    if (length <= 0 || utf8proc_category(character) == UTF8PROC_CATEGORY_CC) return false;
    next += length;
    left -= length;
  }
  return true;
}

void validate_holder(std::string_view text) {
  if (is_holder(text)) return;
  throw LockError(ErrorCode::invalid_argument, "holder must have at most " +
                                                   std::to_string(ClientOptions::max_holder_bytes) +
                                                   " bytes, be valid UTF-8 and contain no control characters");
}

std::string stored_holder(std::string text) { return is_holder(text) ? std::move(text) : std::string(); }

std::optional<std::string> to_nfc(std::string_view text) {
  // ASCII is its own normal form, and nearly every key is ASCII.
  if (std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
    return std::string(text);
  }
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(mapped, &std::free);
  if (length == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (length < 0) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(owned.get()), static_cast<std::size_t>(length));
}

}  // namespace syncguard::core
