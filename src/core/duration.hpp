// Durations as people write them.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace syncguard::core {

// Reads "500ms", "30s", "5m", "1h30m": whole numbers with units h, m, s, ms in falling order, each at most once.
// Nothing for anything else, or for what milliseconds cannot hold.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) noexcept;

}  // namespace syncguard::core
