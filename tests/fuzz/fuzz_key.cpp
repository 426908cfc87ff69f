// Any bytes as a key: they give a normalized key within its limits, or LockError(invalid_argument).

#include <syncguard/error.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/storage_key.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace syncguard;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  (void)hash_key(text);
  try {
    const Key key(text);
    require(!key.str().empty() && key.str().size() <= Key::max_bytes);
    require(key.str().find('\0') == std::string::npos);
    require(Key(key.str()) == key);
    const StorageLimit limit{.limit = 100, .reserve = 26};
    const auto lock_key = lock_storage_key("prefix", key, limit);
    require(lock_key.size() + limit.reserve <= limit.limit);
    require(fence_storage_key("prefix", lock_key, limit) != lock_key);
  } catch (const LockError& error) {
    require(error.code() == ErrorCode::invalid_argument);
  }
  return 0;
}
