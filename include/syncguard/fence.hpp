// The number that lets a resource tell an old holder from a new one.
#pragma once

#include <syncguard/export.hpp>

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace syncguard {

// A fencing token. Every acquisition of a key gets a higher one than all before it, across releases, expiries,
// restarts and processes. Its text is always 15 digits, zero padded, so that text order is numeric order and any
// store can compare it.
class SYNCGUARD_EXPORT Fence {
 public:
  static constexpr std::uint64_t max_value = 999'999'999'999'999;
  // Above this, operators are warned.
  static constexpr std::uint64_t warn_above = 90'000'000'000'000;
  // Above this, no lock is granted any more.
  static constexpr std::uint64_t refuse_above = 900'000'000'000'000;

  // The fence before all others: no acquisition ever gets it.
  Fence() = default;
  // Throws LockError(invalid_argument) if value exceeds max_value.
  explicit Fence(std::uint64_t value);
  // Reads the text form. Throws LockError(invalid_argument) unless it is exactly 15 digits.
  static Fence parse(std::string_view text);

  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }
  [[nodiscard]] std::string str() const;

  friend auto operator<=>(const Fence&, const Fence&) = default;

 private:
  std::uint64_t value_ = 0;
};

}  // namespace syncguard
