/// \file
/// Information about a held lock.
#pragma once

#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lock_id.hpp>

#include <chrono>
#include <string>
#include <string_view>

namespace syncguard {
inline namespace v0_1 {

/// A point in time on the clock of the backend's time authority, in Unix milliseconds.
using Timestamp = std::chrono::sys_time<std::chrono::milliseconds>;

/// The first 24 hexadecimal digits of the SHA-256 of value in normalization form C: distinguishes identifiers in logs
/// without revealing them.
SYNCGUARD_EXPORT std::string hash_key(std::string_view value);

/// The stored record of a lock, with raw identifiers. For debugging: never log it.
struct LockRecord {
  Key key;
  LockId lock_id;
  Timestamp expires_at;
  Timestamp acquired_at;
  Fence fence;
  /// The label that the holder's client stored, see ClientOptions::holder. Empty if there is none, as for locks of
  /// other SyncGuard libraries. Any client can choose any label: it informs people and proves nothing.
  std::string holder{};

  friend bool operator==(const LockRecord&, const LockRecord&) = default;
};

/// The same without raw identifiers.
struct LockInfo {
  std::string key_hash;
  std::string lock_id_hash;
  Timestamp expires_at;
  Timestamp acquired_at;
  Fence fence;
  /// As in LockRecord.
  std::string holder{};

  friend bool operator==(const LockInfo&, const LockInfo&) = default;
};

SYNCGUARD_EXPORT LockInfo sanitize(const LockRecord& record);

}  // namespace v0_1
}  // namespace syncguard
