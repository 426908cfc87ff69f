// What syncguard tells its guardian: one packet each, between two processes of one program.
#pragma once

#include <array>
#include <cstdint>

namespace syncguard::command {

struct Order {
  enum class Kind : std::uint8_t { start, prolong, lock_is_gone, forward, go_on };
  Kind kind{};
  int signal = 0;
  std::int64_t deadline = 0;  // nanoseconds of CLOCK_BOOTTIME
  // Ending in zero; for start.
  std::array<char, 32> lock_id{};
  std::array<char, 32> fence{};
};

}  // namespace syncguard::command
