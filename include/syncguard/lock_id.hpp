/// \file
/// The identifier of one acquisition.
#pragma once

#include <syncguard/export.hpp>

#include <array>
#include <compare>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace syncguard {
inline namespace v0_1 {

/// 16 bytes from the operating system's random source, as 22 characters of [A-Za-z0-9_-]. Any process that knows it can
/// release, extend and adopt the lock: treat it as a secret.
class SYNCGUARD_EXPORT LockId {
 public:
  static constexpr std::size_t length = 22;

  /// Generates a new id. Throws LockError(internal) if the system provides no randomness.
  static LockId generate();

  /// Throws LockError(invalid_argument) unless text has the form above.
  explicit LockId(std::string_view text);
  /// Whether text has the form above.
  [[nodiscard]] static bool is_valid(std::string_view text) noexcept;

  [[nodiscard]] std::string_view view() const noexcept { return {text_.data(), text_.size()}; }
  [[nodiscard]] std::string str() const { return std::string(view()); }

  friend bool operator==(const LockId&, const LockId&) = default;
  friend std::strong_ordering operator<=>(const LockId&, const LockId&) = default;

 private:
  std::array<char, length> text_{};
};

}  // namespace v0_1
}  // namespace syncguard

template <>
struct std::hash<syncguard::LockId> {
  std::size_t operator()(const syncguard::LockId& id) const noexcept {
    return std::hash<std::string_view>{}(id.view());
  }
};
