// The handle of one acquisition.
#pragma once

#include <syncguard/export.hpp>

#include <array>
#include <compare>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace syncguard {

// 16 bytes from the operating system's random source, as 22 characters of [A-Za-z0-9_-]. Whoever has it can
// release and extend the lock, from any process: treat it as a secret.
class SYNCGUARD_EXPORT LockId {
 public:
  static constexpr std::size_t length = 22;

  // A new one that was never used before. Throws LockError(internal) if the system gives no randomness.
  static LockId generate();

  // Throws LockError(invalid_argument) unless text has the form above.
  explicit LockId(std::string_view text);
  // Whether text has the form above.
  [[nodiscard]] static bool is_valid(std::string_view text) noexcept;

  [[nodiscard]] std::string_view view() const noexcept { return {text_.data(), text_.size()}; }
  [[nodiscard]] std::string str() const { return std::string(view()); }

  friend bool operator==(const LockId&, const LockId&) = default;
  friend std::strong_ordering operator<=>(const LockId&, const LockId&) = default;

 private:
  std::array<char, length> text_{};
};

}  // namespace syncguard

template <>
struct std::hash<syncguard::LockId> {
  std::size_t operator()(const syncguard::LockId& id) const noexcept {
    return std::hash<std::string_view>{}(id.view());
  }
};
