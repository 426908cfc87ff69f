#include <syncguard/error.hpp>
#include <syncguard/storage_key.hpp>

#include "core/encodings.hpp"

#include <span>

namespace syncguard {
inline namespace v0_1 {

std::string storage_hash(std::string_view whole) {
  constexpr std::size_t hashed_bytes = 16;
  const auto digest = core::sha256(whole);
  return core::base64url(std::span(digest).first<hashed_bytes>());
}

std::string make_storage_key(std::string_view prefix, std::string_view name, StorageLimit limit) {
  while (prefix.ends_with(':')) prefix.remove_suffix(1);
  std::string root(prefix);
  if (!root.empty()) root += ':';

  std::string whole = root + std::string(name);
  if (whole.size() + limit.reserve <= limit.limit) return whole;

  std::string hashed = root + storage_hash(whole);
  if (hashed.size() + limit.reserve <= limit.limit) return hashed;
  throw LockError(ErrorCode::invalid_argument, "the prefix leaves no room for a key in this store");
}

std::string lock_storage_key(std::string_view prefix, const Key& key, StorageLimit limit) {
  return make_storage_key(prefix, key.str(), limit);
}

std::string fence_storage_key(std::string_view prefix, std::string_view lock_storage_key, StorageLimit limit) {
  return make_storage_key(prefix, "fence:" + std::string(lock_storage_key), limit);
}

}  // namespace v0_1
}  // namespace syncguard
