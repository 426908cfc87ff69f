/// \file
/// Fencing tokens.
#pragma once

#include <syncguard/export.hpp>

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace syncguard {
inline namespace v0_1 {

/// A number by which a resource distinguishes an old holder from a new one. Every acquisition of a key gets a higher
/// fence than all earlier ones, across releases, expiries, restarts and processes; FenceSource says what happens after
/// the loss of data. Fences need not start at 1 or grow by 1. Their text is always 15 digits, zero padded, so that text
/// order is numeric order and any store can compare it.
class SYNCGUARD_EXPORT Fence {
 public:
  static constexpr std::uint64_t max_value = 999'999'999'999'999;
  /// Above this, acquisitions log a warning.
  static constexpr std::uint64_t warn_above = 90'000'000'000'000;
  /// Above this, acquisitions fail.
  static constexpr std::uint64_t refuse_above = 900'000'000'000'000;

  /// The fence before all others; no acquisition ever gets it.
  Fence() = default;
  /// Throws LockError(invalid_argument) if value exceeds max_value.
  explicit Fence(std::uint64_t value);
  /// Parses the text form. Throws LockError(invalid_argument) unless it is exactly 15 digits.
  static Fence parse(std::string_view text);

  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }
  [[nodiscard]] std::string str() const;

  friend auto operator<=>(const Fence&, const Fence&) = default;
  /// Writes str().
  friend SYNCGUARD_EXPORT std::ostream& operator<<(std::ostream& stream, const Fence& fence);

 private:
  std::uint64_t value_ = 0;
};

/// How a store that outlives its clients makes the next fence of a key. By URL: option fences.
enum class FenceSource {
  /// The larger of the key's counter + 1 and the store's time in units of 100 us, in the same atomic step. Fences keep
  /// growing after a failover, a restore or a deletion that lost the newest counters, unless the clock of the time
  /// authority is then behind by more than the time since the lost grant. A clock beyond Fence::warn_above (the year
  /// 2255) is ignored, with a warning in the log.
  clock,
  /// The key's counter + 1. Fences repeat once the store has lost counters.
  counter,
};

}  // namespace v0_1
}  // namespace syncguard
