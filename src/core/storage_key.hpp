// Where a key's data lives in a store. Shared with every other SyncGuard, byte for byte.
#pragma once

#include <syncguard/key.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace syncguard::core {

// A store's limit on the length of its keys, in bytes, and how much of it must stay free.
struct StorageLimit {
  std::size_t limit;
  std::size_t reserve;
};

// 22 characters that stand for a name which a store does not take as it is.
std::string storage_hash(std::string_view whole);

// prefix:name, or name alone without a prefix; where that is too long, the name is replaced by a hash of the whole.
// Trailing colons of the prefix do not count. Throws LockError(invalid_argument) where not even the hash fits.
std::string make_storage_key(std::string_view prefix, std::string_view name, StorageLimit limit);

// Where the lock itself lives.
std::string lock_storage_key(std::string_view prefix, const Key& key, StorageLimit limit);

// Where its fence counter lives. Derived from the lock's storage key, so that a hashed key and its counter stay 1:1.
std::string fence_storage_key(std::string_view prefix, std::string_view lock_storage_key, StorageLimit limit);

}  // namespace syncguard::core
