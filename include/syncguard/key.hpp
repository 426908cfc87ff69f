// The name of the thing that is locked.
#pragma once

#include <syncguard/export.hpp>

#include <compare>
#include <concepts>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace syncguard {

// A valid key: UTF-8 in Unicode normalisation form C, 1 to 512 bytes, no NUL. Two spellings of the same text
// ("é" as one code point or as two) are the same key.
//
// Converts from any string, so that `locks.acquire("report")` reads well; throws LockError(invalid_argument) for
// anything that is no key, before any I/O.
class SYNCGUARD_EXPORT Key {
 public:
  static constexpr std::size_t max_bytes = 512;

  template <std::convertible_to<std::string_view> Text>
  Key(const Text& text) : Key(normalised, std::string_view(text)) {}  // NOLINT(*-explicit-*): see above

  [[nodiscard]] const std::string& str() const noexcept { return text_; }

  friend bool operator==(const Key&, const Key&) = default;
  friend std::strong_ordering operator<=>(const Key&, const Key&) = default;

 private:
  struct Normalised {};
  static constexpr Normalised normalised{};
  Key(Normalised, std::string_view text);

  std::string text_;
};

}  // namespace syncguard

template <>
struct std::hash<syncguard::Key> {
  std::size_t operator()(const syncguard::Key& key) const noexcept { return std::hash<std::string>{}(key.str()); }
};
