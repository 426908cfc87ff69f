// Any bytes as a credentials file: a project that may stand in a header, or LockError(auth_failed) in one line of plain
// text.

#include "backends/firestore/credentials.hpp"

#include <syncguard/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace syncguard;
  const auto is_plain = [](std::string_view text) {
    return std::ranges::all_of(text, [](unsigned char c) { return c >= ' ' && c < 0x7f; });
  };
  try {
    const auto project =
        firestore::check_credentials_file({reinterpret_cast<const char*>(data), size}, "the credentials file");
    if (!is_plain(project) || project.size() > 128) std::abort();
  } catch (const LockError& error) {
    if (error.code() != ErrorCode::auth_failed || !is_plain(error.what())) std::abort();
  }
  return 0;
}
