// Unicode, as far as keys need it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace syncguard::core {

// text in normalisation form C, or nothing if it is not valid UTF-8.
std::optional<std::string> to_nfc(std::string_view text);

}  // namespace syncguard::core
