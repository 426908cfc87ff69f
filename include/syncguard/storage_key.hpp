/// \file
/// The names under which a store holds a key's data: for authors of backends. Identical in all SyncGuard libraries,
/// byte for byte, so that their processes exclude each other.
#pragma once

#include <syncguard/export.hpp>
#include <syncguard/key.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace syncguard {
inline namespace v0_1 {

/// A store's limit on the length of its keys, in bytes, and how much of it is reserved.
struct StorageLimit {
  std::size_t limit;
  std::size_t reserve;
};

/// The limit of each store. All SyncGuard libraries use the same, although a store may allow more (Redis: 512 MB).
inline constexpr StorageLimit redis_storage_limit{.limit = 1000, .reserve = 26};
inline constexpr StorageLimit postgres_storage_limit{.limit = 1700, .reserve = 0};
inline constexpr StorageLimit sqlite_storage_limit = postgres_storage_limit;
inline constexpr StorageLimit firestore_storage_limit{.limit = 1500, .reserve = 0};

/// 22 characters of [A-Za-z0-9_-] that replace a name that a store does not accept: the first 16 bytes of its SHA-256,
/// in base64url.
SYNCGUARD_EXPORT std::string storage_hash(std::string_view whole);

/// prefix:name, or only name without a prefix. If that is too long, a hash of the whole replaces the name. Trailing
/// colons of the prefix are ignored. Throws LockError(invalid_argument) if not even the hash fits.
SYNCGUARD_EXPORT std::string make_storage_key(std::string_view prefix, std::string_view name, StorageLimit limit);

/// The name of the lock.
SYNCGUARD_EXPORT std::string lock_storage_key(std::string_view prefix, const Key& key, StorageLimit limit);

/// The name of its fence counter. Derived from the lock's storage key, so that each hashed key has exactly one counter.
SYNCGUARD_EXPORT std::string fence_storage_key(std::string_view prefix, std::string_view lock_storage_key,
                                               StorageLimit limit);

}  // namespace v0_1
}  // namespace syncguard
