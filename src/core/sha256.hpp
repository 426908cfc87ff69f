#pragma once

#include <array>
#include <string_view>

namespace syncguard::core {

std::array<unsigned char, 32> sha256(std::string_view text);

}  // namespace syncguard::core
