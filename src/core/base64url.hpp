// Base64 with the URL-safe alphabet and no padding.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace syncguard::core {

inline constexpr std::string_view base64url_alphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string base64url(std::span<const unsigned char> bytes);

}  // namespace syncguard::core
