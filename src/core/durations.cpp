#include "core/durations.hpp"

#include "core/random.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <system_error>

namespace syncguard::core {

namespace {

// So that a delay of zero does not keep a processor and the store busy.
constexpr std::chrono::nanoseconds min_retry_delay = std::chrono::milliseconds(1);

}  // namespace

double random_fraction() { return std::ldexp(std::bit_cast<std::uint32_t>(random_bytes<4>()), -32); }

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) noexcept {
  struct Unit {
    std::string_view name;
    std::int64_t millis;
  };
  constexpr std::array<Unit, 5> units{{{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};

  if (text.empty()) return std::nullopt;
  std::int64_t total = 0;
  std::size_t next_unit = 0;
  while (!text.empty()) {
    std::int64_t count = 0;
    if (text.front() == '-') return std::nullopt;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));

    const std::string_view name = text.substr(0, text.find_first_of("0123456789"));
    while (next_unit < units.size() && units[next_unit].name != name) ++next_unit;
    if (next_unit == units.size()) return std::nullopt;
    std::int64_t millis = 0;
    if (__builtin_mul_overflow(count, units[next_unit].millis, &millis) ||
        __builtin_add_overflow(total, millis, &total)) {
      return std::nullopt;
    }
    ++next_unit;
    text.remove_prefix(name.size());
  }
  return std::chrono::milliseconds(total);
}

std::chrono::nanoseconds retry_delay(const WaitOptions& options, int retry, double random) noexcept {
  using FloatingMillis = std::chrono::duration<double, std::milli>;
  FloatingMillis base = options.retry_delay;
  if (options.backoff == Backoff::exponential) base *= std::exp2(std::min(retry - 1, 62));
  FloatingMillis delay = base;
  switch (options.jitter) {
    case Jitter::equal:
      delay = base / 2 + random * (base / 2);
      break;
    case Jitter::full:
      delay = random * base;
      break;
    case Jitter::none:
      break;
  }
  // Clamped to at most a year before the conversion from floating point: a larger value could overflow the nanoseconds.
  constexpr std::chrono::hours longest{24 * 365};
  const auto bounded = std::min({delay, FloatingMillis(options.max_delay), FloatingMillis(longest)});
  return std::max(std::chrono::duration_cast<std::chrono::nanoseconds>(bounded), min_retry_delay);
}

}  // namespace syncguard::core
