/// \file
/// The name of a lock.
#pragma once

#include <syncguard/export.hpp>

#include <compare>
#include <concepts>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

namespace syncguard {
inline namespace v0_1 {

/// A valid key: UTF-8 in Unicode normalization form C, 1 to 512 bytes, no NUL. Two spellings of the same text ("é" as
/// one code point or as two) are the same key.
///
/// Converts from any string, so that `locks.acquire("report")` reads well. Throws LockError(invalid_argument) for an
/// invalid key and for a null pointer, before any I/O.
class SYNCGUARD_EXPORT Key {
 public:
  static constexpr std::size_t max_bytes = 512;

  template <std::convertible_to<std::string_view> Text>
  Key(const Text& text) : Key(normalized, view(text)) {}  // NOLINT(*-explicit-*): see above
  Key(std::nullptr_t) = delete;

  [[nodiscard]] const std::string& str() const noexcept { return text_; }

  friend bool operator==(const Key&, const Key&) = default;
  friend std::strong_ordering operator<=>(const Key&, const Key&) = default;

 private:
  struct Normalized {};
  static constexpr Normalized normalized{};
  Key(Normalized, std::string_view text);

  template <typename Text>
  static std::string_view view(const Text& text) {
    if constexpr (std::is_pointer_v<Text>) {
      if (text == nullptr) return {};  // not a string: rejected like an empty one
    }
    return text;
  }

  std::string text_;
};

}  // namespace v0_1
}  // namespace syncguard

template <>
struct std::hash<syncguard::Key> {
  std::size_t operator()(const syncguard::Key& key) const noexcept { return std::hash<std::string>{}(key.str()); }
};
